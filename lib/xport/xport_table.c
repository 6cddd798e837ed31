/*
 * The list of transports. A new one is a file with one symbol, declared in xport.h, and a row here.
 */
#include "xport/xport.h"

const struct tiara_xport *const tiara_xport_table[] = {
    &tiara_xport_inproc,
    &tiara_xport_shm,
    &tiara_xport_cma,
    &tiara_xport_mpi,
    NULL,
};
