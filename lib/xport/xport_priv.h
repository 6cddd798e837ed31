/*
 * What the transports of this directory share: agreement at open, and the meaning of errno.
 *
 * The one idea: a rank that fails before an exchange must still take part in it, or its peers hang.
 * So open() runs in phases; each phase collects its local error and hands it to
 * tiara_xport_agree(), which needs no memory and therefore always takes part.
 */
#ifndef TIARA_XPORT_PRIV_H
#define TIARA_XPORT_PRIV_H

#include "xport/xport.h"

#include <sys/socket.h>
#include <sys/un.h>

/* Most members of a group that opens a transport with tiara_xport_agree(). */
#define TIARA_XPORT_GROUP_MAX 4096

/* Alignment of every segment. */
#define TIARA_XPORT_ALIGN ((size_t)4096)

/* Logs that what the printf-like @format says failed with @number (an errno), and returns its
 * class: NOSPACE, UNSUPPORTED or SYS. */
TIARA_MUST_USE enum tiara_err tiara_xport_sys_error(int number, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The address of a unix socket that is known by @name in the directory @place, which ends with a
 * slash; NULL: an abstract one. Returns its length. */
socklen_t tiara_xport_address(const char *place, uint64_t name, struct sockaddr_un *address_out);

/* @bytes rounded up to a multiple of TIARA_XPORT_ALIGN; the caller knows that this does not
 * overflow. */
static inline size_t tiara_xport_round_up(size_t bytes)
{
    return (bytes + TIARA_XPORT_ALIGN - 1) & ~(TIARA_XPORT_ALIGN - 1);
}

#endif
