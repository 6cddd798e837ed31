/*
 * What the files of redop share: the tables of rows, and what does not depend on the instruction
 * set.
 */
#ifndef TIARA_REDOP_PRIV_H
#define TIARA_REDOP_PRIV_H

#include "redop/redop.h"
#include <float.h>
#include <string.h>

/* One operator more than there are: the SUM that has a finish. */
#define TIARA_REDOP_AVG TIARA_NOPER

/* Of one instruction set each; entries without a fold do not exist in it. */
struct tiara_redop_rows {
    struct tiara_redop row[TIARA_NTYPE][TIARA_NOPER + 1];
};
extern const struct tiara_redop_rows tiara_redop_portable, tiara_redop_avx2, tiara_redop_avx512;

/* The fold of one source; @dst may be @src. */
static inline void tiara_redop_copy(void *dst, const void *src, size_t bytes)
{
    if (dst != src && bytes > 0)
        memcpy(dst, src, bytes);
}

/* Bytes of a long double that hold its value: x87's has 10 and padding. */
#define TIARA_REDOP_F80_USED (LDBL_MANT_DIG == 64 ? 10 : sizeof(long double))

/* The finish of AVG, one per type (redop_avg.c). */
typedef void tiara_redop_finish_fn(const struct tiara_redop *op, void *buf, size_t n, int nranks);
#define TIARA_REDOP_FINISH(a, ID, name, bits, class)                                               \
    tiara_redop_finish_fn tiara_redop_finish_##name;
TIARA_GPU_TYPES(TIARA_REDOP_FINISH, )
tiara_redop_finish_fn tiara_redop_finish_f80, tiara_redop_finish_c32, tiara_redop_finish_c64;

#endif
