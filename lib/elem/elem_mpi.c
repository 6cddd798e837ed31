/*
 * Elements that the MPI below combines: user-defined operators on any type, and pair types.
 *
 * The engine moves dense elements. A type without holes is moved as it lies in memory. Any other is
 * packed first (MPI_Pack: the data of the type map in its order, no holes, overlaps twice), moved
 * packed, and laid out again only where the operator reads it and in the caller's receive buffer;
 * so holes of the caller's buffers are never touched, whatever the type's bounds.
 *
 * A fold runs from the left: acc = src[0]; acc = acc op src[i]. MPI_Reduce_local(in, inout)
 * computes inout = in op inout, with the left operand first; so each operand is copied into the
 * inout that becomes the next acc.
 */
#include "elem/elem_mpi.h"
#include "base/alloc.h"
#include "base/log.h"
#include <limits.h>
#include <string.h>

/* Bytes combined at a time, so that the scratch stays in a near cache. */
#define PIECE_BYTES ((size_t)32768)
/* Of an address that is given to an operator. */
#define ALIGN ((size_t)64)

/* ---- packing ---- */

/*
 * One call of MPI's. Some MPIs refuse a null address although the type has absolute ones
 * (MPI_BOTTOM): then the type is moved, and the dense side, which is some address, stands in for
 * it.
 */
static int pack_piece(void *typed, int n, MPI_Datatype type, char *dense, int bytes, bool unpack)
{
    MPI_Datatype moved = MPI_DATATYPE_NULL;
    MPI_Aint base;
    int position = 0, rc = MPI_SUCCESS;

    if (!typed) {
        rc = PMPI_Get_address(dense, &base);
        base = -base;
        if (rc == MPI_SUCCESS)
            rc = PMPI_Type_create_hindexed(1, &n, &base, type, &moved);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Type_commit(&moved);
        typed = dense;
        type = moved;
        n = 1;
    }
    if (rc == MPI_SUCCESS && unpack)
        rc = PMPI_Unpack(dense, bytes, &position, typed, n, type, MPI_COMM_SELF);
    else if (rc == MPI_SUCCESS)
        rc = PMPI_Pack(typed, n, type, dense, bytes, &position, MPI_COMM_SELF);
    if (moved != MPI_DATATYPE_NULL)
        PMPI_Type_free(&moved);
    return rc;
}

int tiara_elem_pack(const void *from, MPI_Aint extent, size_t size, size_t count, MPI_Datatype type,
    char *to, bool unpack)
{
    size_t piece = (size_t)INT_MAX / size; /* elements of one call */
    int rc = MPI_SUCCESS;

    for (size_t at = 0; at < count && rc == MPI_SUCCESS; at += piece) {
        int n = (int)(count - at < piece ? count - at : piece);
        char *typed = (char *)(uintptr_t)from + (MPI_Aint)at * extent;

        rc = pack_piece(typed, n, type, to + at * size, n * (int)size, unpack);
    }
    return rc;
}

/* ---- combining ---- */

/* The address to give MPI for elements whose first touched byte is @scratch. */
static char *typed(const struct tiara_elem_mpi *m, char *scratch)
{
    return scratch - m->true_lb;
}

/* Moves @n elements between @scratch, where they lie as operands, and their dense form. */
static enum tiara_err move(
    const struct tiara_elem_mpi *m, char *scratch, char *dense, size_t n, bool lay_out)
{
    size_t size = m->redop.elem_size;

    if (!m->packed)
        memcpy(lay_out ? scratch : dense, lay_out ? dense : scratch, n * size);
    else if (tiara_elem_pack(typed(m, scratch), m->extent, size, n, m->type, dense, lay_out) !=
             MPI_SUCCESS)
        return TIARA_ERR_MPI;
    return TIARA_OK;
}

static enum tiara_err lay_out(const struct tiara_elem_mpi *m, char *to, const char *from, size_t n)
{
    return move(m, to, (char *)(uintptr_t)from, n, true);
}

static enum tiara_err fold_piece(
    struct tiara_elem_mpi *m, char *dst, const void *const *src, int nsrc, size_t at, size_t n)
{
    size_t skip = at * m->redop.elem_size;
    char *acc = m->acc, *next = m->next, *swap;
    enum tiara_err err = lay_out(m, acc, (const char *)src[0] + skip, n);

    for (int i = 1; i < nsrc && err == TIARA_OK; i++) {
        err = lay_out(m, next, (const char *)src[i] + skip, n);
        if (err == TIARA_OK &&
            PMPI_Reduce_local(typed(m, acc), typed(m, next), (int)n, m->type, m->op) != MPI_SUCCESS)
            err = TIARA_ERR_MPI;
        swap = acc;
        acc = next;
        next = swap;
    }
    return err == TIARA_OK ? move(m, acc, dst + skip, n, false) : err;
}

static enum tiara_err fold_mpi(
    const struct tiara_redop *op, void *dst, const void *const *src, int nsrc, size_t n)
{
    struct tiara_elem_mpi *m = (struct tiara_elem_mpi *)(uintptr_t)op->ctx;
    enum tiara_err err = TIARA_OK;

    for (size_t at = 0; at < n && err == TIARA_OK; at += m->piece)
        err = fold_piece(m, dst, src, nsrc, at, n - at < m->piece ? n - at : m->piece);
    if (err == TIARA_ERR_MPI)
        tiara_error("MPI could not combine or pack elements");
    return err;
}

/* What the type's layout says. */
static enum tiara_err measure(struct tiara_elem_mpi *m, MPI_Datatype type, size_t *size_out)
{
    MPI_Aint lb, true_extent;
    MPI_Count size;

    if (PMPI_Type_get_extent(type, &lb, &m->extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent(type, &m->true_lb, &true_extent) != MPI_SUCCESS ||
        PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size == MPI_UNDEFINED)
        return TIARA_ERR_MPI;
    m->span_one = (size_t)true_extent;
    m->packed = !(lb == 0 && m->true_lb == 0 && m->extent == true_extent && size == true_extent);
    *size_out = (size_t)size;
    return TIARA_OK;
}

/*
 * Scratch for two operands of a piece: as many elements as PIECE_BYTES hold, laid out with
 * their holes. One where elements reach into each other, as those of a send buffer may. A negative
 * extent puts the later elements below the first. The address that the operator gets is aligned.
 *
 * Holes of the operands are whatever the memory holds; an operator that looks at them finds zeros,
 * at least at first. Pages of holes are never touched.
 */
static enum tiara_err take_scratch(struct tiara_elem_mpi *m)
{
    size_t step = (size_t)(m->extent < 0 ? -m->extent : m->extent);
    size_t most = step > m->redop.elem_size ? step : m->redop.elem_size;
    size_t first, bytes;

    m->piece = step < m->span_one || most > PIECE_BYTES ? 1 : PIECE_BYTES / most;
    first = m->extent < 0 ? ((m->piece - 1) * step + ALIGN - 1) / ALIGN * ALIGN : 0;
    first += (size_t)m->true_lb % ALIGN;
    bytes = (first + m->span_one + (m->piece - 1) * step + ALIGN - 1) / ALIGN * ALIGN;
    m->scratch =
        m->packed ? tiara_alloc(2 * bytes + ALIGN, 1) : tiara_alloc_aligned(ALIGN, 2 * bytes);
    if (!m->scratch)
        return TIARA_ERR_NOMEM;
    m->acc = m->scratch + (ALIGN - (uintptr_t)m->scratch % ALIGN) % ALIGN + first;
    m->next = m->acc + bytes;
    return TIARA_OK;
}

static enum tiara_err elem_init(
    struct tiara_elem_mpi *m, MPI_Datatype type, MPI_Op op, struct tiara_elem *e)
{
    int commutes = 0;
    size_t size;
    enum tiara_err err = measure(m, type, &size);

    if (err != TIARA_OK || PMPI_Op_commutative(op, &commutes) != MPI_SUCCESS)
        return TIARA_ERR_MPI;
    if (size == 0 || size > INT_MAX) {
        e->redop = NULL;
        return TIARA_OK;
    }
    m->type = type;
    m->op = op;
    m->redop = (struct tiara_redop){
        .name = "mpi", .elem_size = size, .commutative = commutes != 0, .fold = fold_mpi, .ctx = m};
    e->size = size;
    e->packed = m->packed;
    e->redop = &m->redop;
    return take_scratch(m);
}

/* C structs, some with padding, which are then packed like any type with holes. */
static bool is_pair(MPI_Datatype type)
{
    return type == MPI_FLOAT_INT || type == MPI_DOUBLE_INT || type == MPI_LONG_INT ||
           type == MPI_2INT || type == MPI_SHORT_INT || type == MPI_LONG_DOUBLE_INT;
}

#define IS_NOT(a, ID, name) op != MPI_##ID &&
static bool is_user_op(MPI_Op op)
{
    return TIARA_OPERATORS(IS_NOT, ) op != MPI_MINLOC && op != MPI_MAXLOC && op != MPI_REPLACE &&
           op != MPI_NO_OP && op != MPI_OP_NULL;
}

enum tiara_err tiara_elem_other(
    MPI_Datatype type, MPI_Op op, struct tiara_elem *e, struct tiara_elem_mpi *m)
{
    *m = (struct tiara_elem_mpi){0};
    *e = (struct tiara_elem){.type = -1, .oper = -1};
    if (type == MPI_DATATYPE_NULL)
        return TIARA_OK;
    if (is_user_op(op) || (is_pair(type) && (op == MPI_MINLOC || op == MPI_MAXLOC)))
        return elem_init(m, type, op, e);
    return TIARA_OK;
}

enum tiara_err tiara_elem_moved(MPI_Datatype type, struct tiara_elem *e)
{
    struct tiara_elem_mpi m = {0};
    size_t size;
    enum tiara_err err = measure(&m, type, &size);

    *e = (struct tiara_elem){.type = -1, .oper = -1, .size = size, .packed = m.packed};
    return err;
}

void tiara_elem_mpi_fini(struct tiara_elem_mpi *m)
{
    tiara_free(m->scratch);
    m->scratch = NULL;
}
