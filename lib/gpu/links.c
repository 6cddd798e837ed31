/*
 * Which links a node's GPUs have: every pair, or a ring.
 *
 * A ring is a Hamiltonian cycle of the graph of pairs that reach each other. Sets of ranks are
 * bits, so that all paths from rank 0 are found by 2^15 sets at most: for each set, the ranks at
 * which a path can end that visits just these. The ring is then read backwards, always through the
 * lowest rank, so that all ranks find the same one.
 *
 *     0 - 1 - 3 - 2 - 0      sets {1} ends 1; {2} ends 2; {1,3} ends 3; {2,3} ends 3; {1,2,3} ends
 *                            1 and 2
 *                            backwards from 0: 1 (the lower end), before it 3, before it 2: ring 0
 *                            2 3 1
 */
#include "gpu/segment.h"
#include "base/alloc.h"

/* Ranks 1 .. size - 1 are bits 0 .. size - 2 here. */
static void paths_find(const uint16_t *reach, int size, uint16_t *ends)
{
    unsigned all = (1u << (size - 1)) - 1;

    for (int rank = 1; rank < size; rank++) {
        if ((reach[0] >> rank & 1) != 0)
            ends[1u << (rank - 1)] = (uint16_t)(1u << (rank - 1));
    }
    for (unsigned set = 1; set < all; set++) {
        for (int rank = 1; ends[set] != 0 && rank < size; rank++) {
            unsigned bit = 1u << (rank - 1);

            if ((set & bit) == 0 && (reach[rank] >> 1 & ends[set]) != 0)
                ends[set | bit] |= (uint16_t)bit;
        }
    }
}

/* False: there is no ring. */
static bool ring_read(const uint16_t *reach, int size, const uint16_t *ends, int *order_out)
{
    unsigned set = (1u << (size - 1)) - 1;
    int after = 0;

    order_out[0] = 0;
    for (int place = size - 1; place > 0; place--) {
        unsigned can = reach[after] >> 1 & ends[set];

        if (can == 0)
            return false;
        after = __builtin_ctz(can) + 1;
        order_out[place] = after;
        set &= ~(1u << (after - 1));
    }
    return true;
}

enum tiara_err tiara_gpu_links_find(const uint16_t reach[TIARA_KERNEL_PEERS], int size,
    enum tiara_gpu_links *links_out, int order_out[TIARA_KERNEL_PEERS])
{
    unsigned all = (1u << size) - 1;
    bool is_complete = true;
    uint16_t *ends;
    bool found;

    for (int rank = 0; rank < size; rank++) {
        order_out[rank] = rank;
        is_complete = is_complete && (reach[rank] | 1u << rank) == all;
    }
    *links_out = TIARA_GPU_LINKS_ALL;
    if (is_complete)
        return TIARA_OK;
    /* Two ranks that do not reach each other have no ring. */
    ends = tiara_alloc((size_t)1 << (size - 1), sizeof *ends);
    if (ends == NULL)
        return TIARA_ERR_NOMEM;
    *links_out = TIARA_GPU_LINKS_RING;
    paths_find(reach, size, ends);
    found = ring_read(reach, size, ends, order_out);
    tiara_free(ends);
    return found ? TIARA_OK : TIARA_ERR_UNSUPPORTED;
}
