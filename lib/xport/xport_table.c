/*
 * The list of transports. A new one is a file with one symbol, declared in xport.h, and a row here.
 */
#include "xport/xport.h"

const struct tiara_xport *const tiara_xport_table[] = {
    &tiara_xport_shm,
    &tiara_xport_cma,
    &tiara_xport_mpi,
    &tiara_xport_socket,
    NULL,
};

const struct tiara_xport *tiara_xport_find(unsigned flags)
{
    const struct tiara_xport *const *at = tiara_xport_table;

    while (*at != NULL && ((*at)->flags & flags) != flags)
        at++;
    return *at;
}

void tiara_xport_release(void)
{
    for (int i = 0; tiara_xport_table[i] != NULL; i++)
        tiara_xport_table[i]->close(NULL);
}
