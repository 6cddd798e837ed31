/*
 * Agreement of a group at open, errno as an error of ours, addresses: see xport_priv.h.
 */
#include "xport/xport_priv.h"
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum tiara_err tiara_xport_agree(const struct tiara_xport_group *group, enum tiara_err mine)
{
    unsigned char own = (unsigned char)mine;
    unsigned char all[TIARA_XPORT_GROUP_MAX];
    enum tiara_err err;

    if (group->size > TIARA_XPORT_GROUP_MAX) {
        tiara_debug(
            "group of %d ranks, at most %d can share memory", group->size, TIARA_XPORT_GROUP_MAX);
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

/* The class of an errno: can the layer above go another way, and would less memory help. */
static enum tiara_err errno_class(int number)
{
    switch (number) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        return TIARA_ERR_NOSPACE;
    case EPERM:
    case EACCES:
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
    case ENOENT:
    case ENOTDIR:
    case EROFS:
    case ESRCH:
    case EAFNOSUPPORT:
    case ECONNREFUSED:
    case ETOOMANYREFS:
    case EAGAIN:
        return TIARA_ERR_UNSUPPORTED;
    default:
        return TIARA_ERR_SYS;
    }
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
