/*
 * What transports share: agreement at open, errno as an error of ours, addresses.
 *
 * The one idea: a rank that fails before an exchange must still take part in it, or its peers hang.
 * So open runs in phases; each collects its local error and hands it to tiara_xport_agree(), which
 * needs no memory and therefore always takes part.
 */
#include "xport/xport_priv.h"
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define GROUP_MAX 4096

enum tiara_err tiara_xport_agree(const struct tiara_xport_group *group, enum tiara_err mine)
{
    unsigned char own = (unsigned char)mine;
    unsigned char all[GROUP_MAX];
    enum tiara_err err;

    if (group->size > GROUP_MAX) {
        tiara_debug("group of %d ranks, at most %d can share memory", group->size, GROUP_MAX);
        return TIARA_ERR_UNSUPPORTED;
    }
    err = group->allgather(group->arg, &own, all, 1);
    if (err != TIARA_OK)
        return err;
    for (int i = 0; i < group->size; i++) {
        if (all[i] != TIARA_OK)
            return (enum tiara_err)all[i];
    }
    return TIARA_OK;
}

/* Whether @number is in @list, which ends with 0. */
static bool is_one_of(int number, const int *list)
{
    while (*list != 0 && *list != number)
        list++;
    return *list != 0;
}

/* The class of an errno: can the layer above go another way, and would less memory help. */
static enum tiara_err errno_class(int number)
{
    static const int lacks[] = {ENOMEM, ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, 0};
    static const int refusals[] = {EPERM, EACCES, ENOSYS, EOPNOTSUPP, EINVAL, ENOENT, ENOTDIR,
        EROFS, ESRCH, EAFNOSUPPORT, ECONNREFUSED, ETOOMANYREFS, EAGAIN, 0};

    if (is_one_of(number, lacks))
        return TIARA_ERR_NOSPACE;
    return is_one_of(number, refusals) ? TIARA_ERR_UNSUPPORTED : TIARA_ERR_SYS;
}

enum tiara_err tiara_xport_sys_error(int number, const char *format, ...)
{
    enum tiara_err err = errno_class(number);
    char what[160];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (err == TIARA_ERR_UNSUPPORTED)
        tiara_debug("%s: %s", what, strerror(number));
    else
        tiara_info("%s: %s", what, strerror(number));
    return err;
}

socklen_t tiara_xport_address(const char *place, uint64_t name, struct sockaddr_un *address_out)
{
    int length;

    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    length = snprintf(address_out->sun_path, sizeof address_out->sun_path, "%stiara-%016llx",
        place != NULL ? place : "@", (unsigned long long)name);
    if (place == NULL)
        address_out->sun_path[0] = '\0'; /* its name has no end but its length */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length);
}
