/*
 * What the files of redop share: the shape of a row's table, and the parts of a fold that do not
 * depend on the instruction set.
 */
#ifndef TIARA_REDOP_PRIV_H
#define TIARA_REDOP_PRIV_H

#include "redop/redop.h"
#include <float.h>
#include <string.h>

/* A row's find() also takes this operator: the SUM that has a finish. */
#define TIARA_REDOP_AVG TIARA_NOPER

/* Entries without a fold do not exist in the row. */
struct tiara_redop_rows {
    struct tiara_redop row[TIARA_NTYPE][TIARA_NOPER + 1];
};

static inline const struct tiara_redop *tiara_redop_row(
    const struct tiara_redop_rows *rows, enum tiara_type type, enum tiara_operator oper)
{
    const struct tiara_redop *op = &rows->row[type][oper];
    return op->fold ? op : NULL;
}

/* The fold of one source; @dst may be @src. */
static inline void tiara_redop_copy(void *dst, const void *src, size_t bytes)
{
    if (dst != src && bytes > 0)
        memcpy(dst, src, bytes);
}

/* Bytes of a long double that hold its value: x87's has 10 and padding. */
#define TIARA_REDOP_F80_USED (LDBL_MANT_DIG == 64 ? 10 : sizeof(long double))

/* Whether this CPU has them (redop_cpu.c). */
bool tiara_redop_avx2_supported(void);
bool tiara_redop_avx512_supported(void);

/* The finish of AVG, one per type (redop_avg.c). */
typedef void tiara_redop_finish_fn(const struct tiara_redop *op, void *buf, size_t n, int nranks);
#define TIARA_REDOP_FINISH(a, ID, name, bits, class)                                               \
    tiara_redop_finish_fn tiara_redop_finish_##name;
TIARA_GPU_TYPES(TIARA_REDOP_FINISH, )
tiara_redop_finish_fn tiara_redop_finish_f80, tiara_redop_finish_c32, tiara_redop_finish_c64;

#endif
