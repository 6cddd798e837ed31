/*
 * What the transports share among themselves and with their tests.
 */
#ifndef TIARA_XPORT_PRIV_H
#define TIARA_XPORT_PRIV_H

#include "xport/xport.h"

#include <sys/socket.h>
#include <sys/un.h>

/* Logs that what the printf-like @format says failed with @number (an errno), and returns its
 * class: NOSPACE, UNSUPPORTED or SYS. */
TIARA_MUST_USE enum tiara_err tiara_xport_sys_error(int number, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The address of a unix socket that is known by @name in the directory @place, which ends with a
 * slash; NULL: an abstract one. Returns its length. */
socklen_t tiara_xport_address(const char *place, uint64_t name, struct sockaddr_un *address_out);

/* The ways of shm to hand files over, in the order in which they are tried. What its group->params
 * points to: an unsigned, bits of those that are tried, equal on all ranks; NULL: all. */
enum tiara_xport_shm_way {
    TIARA_XPORT_SHM_WAY_ABSTRACT, /* sockets with abstract names */
    TIARA_XPORT_SHM_WAY_PROC, /* /proc/<pid>/fd/<n> */
    TIARA_XPORT_SHM_WAY_DEV_SHM, /* sockets with names in /dev/shm */
    TIARA_XPORT_SHM_WAY_TMP, /* and in /tmp */
    TIARA_XPORT_SHM_NWAYS
};

#endif
