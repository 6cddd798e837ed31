/*
 * A message transport over socket pairs, for ranks that are forked processes on "nodes" of their
 * own.
 *
 * As simple as the seam allows: what arrives is read into memory of its own and matched by (peer,
 * tag) in order; what cannot be written yet waits in a queue for each peer, in order. Memory is
 * read and written by the CPU, so that device memory works only where the CPU reaches it.
 */
#ifndef TIARA_TEST_CUDA_SOCKETS_H
#define TIARA_TEST_CUDA_SOCKETS_H

#include "xport/xport.h"

#define SOCKETS_MAX 8 /* ranks */

/* One end for each pair, made before the ranks are: fd[a][b] is a's end of the pair with b. */
struct sockets_mesh {
    int n;
    int fd[SOCKETS_MAX][SOCKETS_MAX];
};

struct sockets_peer {
    int fd;
    struct sockets_item *sends, *arrived, *posted; /* in order */
    struct sockets_item *coming; /* is being read */
};

struct sockets {
    int n;
    struct sockets_peer peer[SOCKETS_MAX];
    size_t sent; /* bytes of messages, by this rank */
};

void sockets_mesh_make(struct sockets_mesh *mesh, int n);
void sockets_mesh_close(struct sockets_mesh *mesh);

/* @s becomes @rank's; the ends of others are closed. */
void sockets_take(struct sockets *s, struct sockets_mesh *mesh, int rank);
void sockets_leave(struct sockets *s);

extern const struct tiara_xport sockets_xport;

#endif
