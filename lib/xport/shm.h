/*
 * Parameters of the transport shm (group->params; NULL: none): failures that a test asks for, so
 * that the collective AND is seen at work on a machine where nothing fails.
 */
#ifndef TIARA_XPORT_SHM_H
#define TIARA_XPORT_SHM_H

enum tiara_xport_shm_fail {
    TIARA_XPORT_SHM_FAIL_NONE,
    TIARA_XPORT_SHM_FAIL_MEMFD, /* memfd_create is forbidden on this rank */
    TIARA_XPORT_SHM_FAIL_ROOM, /* no room for this rank's segment */
    TIARA_XPORT_SHM_FAIL_PEER, /* this rank may not look into its peers' /proc entries */
    TIARA_XPORT_SHM_FAIL_COOKIE /* the number of this rank's peer means another process here */
};

struct tiara_xport_shm_params {
    enum tiara_xport_shm_fail fail;
};

#endif
