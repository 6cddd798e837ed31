/*
 * Parameters of the transport shm (group->params; NULL: none), for tests: failures, so that the
 * collective AND is seen at work on a machine where nothing fails, and ways to hand files over, of
 * which the first would always do.
 */
#ifndef TIARA_XPORT_SHM_H
#define TIARA_XPORT_SHM_H

enum tiara_xport_shm_fail {
    TIARA_XPORT_SHM_FAIL_NONE,
    TIARA_XPORT_SHM_FAIL_MEMFD, /* memfd_create is forbidden on this rank */
    TIARA_XPORT_SHM_FAIL_ROOM, /* no room for this rank's segment */
    TIARA_XPORT_SHM_FAIL_PEER, /* no way leads from this rank to its peers */
    TIARA_XPORT_SHM_FAIL_COOKIE /* what this rank finds is not the file that its peer means */
};

/* In the order in which they are tried. */
enum tiara_xport_shm_way {
    TIARA_XPORT_SHM_WAY_ABSTRACT, /* sockets with abstract names */
    TIARA_XPORT_SHM_WAY_PROC, /* /proc/<pid>/fd/<n> */
    TIARA_XPORT_SHM_WAY_DEV_SHM, /* sockets with names in /dev/shm */
    TIARA_XPORT_SHM_WAY_TMP, /* and in /tmp */
    TIARA_XPORT_SHM_NWAYS
};

struct tiara_xport_shm_params {
    enum tiara_xport_shm_fail fail;
    unsigned ways; /* bits of those that are tried, equal on all ranks; 0: all */
};

#endif
