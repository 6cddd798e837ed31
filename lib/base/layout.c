/*
 * Layouts from colours and from text.
 *
 * Every text form is first turned into one colour per rank, and tiara_layout_init() brings colours
 * into the one normal form. All arrays of a layout are pieces of a single allocation.
 */
#include "base/layout.h"
#include "base/alloc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above any cluster; keeps sums inside an int and a typing slip from taking all memory. */
#define MAX_RANKS (1 << 20)

struct coloured {
    uint64_t colour;
    int rank;
};

static int coloured_compare(const void *a, const void *b)
{
    const struct coloured *x = a, *y = b;

    if (x->colour != y->colour)
        return x->colour < y->colour ? -1 : 1;
    return x->rank - y->rank;
}

/* Fills node_of and returns the number of nodes. @sorted is scratch for nranks items. */
static int nodes_number(
    struct tiara_layout *layout, const uint64_t *colour, struct coloured *sorted)
{
    int nnodes = 0, lowest = 0;

    for (int rank = 0; rank < layout->nranks; rank++)
        sorted[rank] = (struct coloured){colour[rank], rank};
    qsort(sorted, (size_t)layout->nranks, sizeof(*sorted), coloured_compare);

    /* first the lowest rank of one's node, then, in rank order, that rank's number */
    for (int i = 0; i < layout->nranks; i++) {
        if (i == 0 || sorted[i].colour != sorted[i - 1].colour)
            lowest = sorted[i].rank;
        layout->node_of[sorted[i].rank] = lowest;
    }
    for (int rank = 0; rank < layout->nranks; rank++) {
        lowest = layout->node_of[rank];
        layout->node_of[rank] = lowest == rank ? nnodes++ : layout->node_of[lowest];
    }
    return nnodes;
}

/* Derives everything from node_of. The arrays are zeroed. */
static void nodes_fill(struct tiara_layout *layout)
{
    int *start = layout->node_start;

    for (int rank = 0; rank < layout->nranks; rank++)
        layout->local_of[rank] = start[layout->node_of[rank] + 1]++;
    layout->min_local = layout->max_local = start[1];
    for (int node = 0; node < layout->nnodes; node++) {
        int size = start[node + 1];

        if (size < layout->min_local)
            layout->min_local = size;
        if (size > layout->max_local)
            layout->max_local = size;
        start[node + 1] += start[node];
    }
    for (int rank = 0; rank < layout->nranks; rank++)
        layout->node_ranks[start[layout->node_of[rank]] + layout->local_of[rank]] = rank;
}

enum tiara_err tiara_layout_init(
    struct tiara_layout *layout_out, int nranks, const uint64_t *colour)
{
    struct tiara_layout layout = {.nranks = nranks};
    struct coloured *sorted;
    size_t n = (size_t)nranks;

    memset(layout_out, 0, sizeof(*layout_out));
    if (nranks < 1)
        return TIARA_ERR_ARG;
    layout.node_of = tiara_alloc(4 * n + 1, sizeof(int));
    sorted = tiara_alloc(n, sizeof(*sorted));
    if (layout.node_of == NULL || sorted == NULL) {
        tiara_free(sorted);
        tiara_free(layout.node_of);
        return TIARA_ERR_NOMEM;
    }
    layout.local_of = layout.node_of + n;
    layout.node_ranks = layout.local_of + n;
    layout.node_start = layout.node_ranks + n;
    layout.nnodes = nodes_number(&layout, colour, sorted);
    nodes_fill(&layout);
    tiara_free(sorted);
    *layout_out = layout;
    return TIARA_OK;
}

void tiara_layout_fini(struct tiara_layout *layout)
{
    /* node_of is the start of the one allocation */
    tiara_free(layout->node_of);
    memset(layout, 0, sizeof(*layout));
}

bool tiara_layout_is_block(const struct tiara_layout *l)
{
    for (int rank = 1; rank < l->nranks; rank++)
        if (l->node_of[rank] < l->node_of[rank - 1])
            return false;
    return true;
}

/* The parser's state: where it reads, and the colours that it has found so far. */
struct parse {
    const char *text; /* all of it, for messages */
    const char *at;
    uint64_t *colour; /* [capacity], of which ncolours are filled; owned */
    size_t ncolours, capacity;
    char *why;
    size_t why_size;
};

/* Always TIARA_ERR_ARG; leaves the sentence "layout "TEXT"REST" in why. */
static enum tiara_err parse_fail(const struct parse *p, const char *rest)
{
    snprintf(p->why, p->why_size, "layout \"%.64s%s\"%s", p->text,
        strlen(p->text) > 64 ? "..." : "", rest);
    return TIARA_ERR_ARG;
}

static enum tiara_err parse_fail_form(const struct parse *p)
{
    return parse_fail(p, ": expected NODESxRANKS such as 2x4, SIZES such as 3+1, "
                         "or one node number per rank such as 0,0,1,1");
}

static enum tiara_err parse_fail_large(const struct parse *p)
{
    char rest[64];

    snprintf(rest, sizeof(rest), " has a number or a sum of ranks above %d", MAX_RANKS);
    return parse_fail(p, rest);
}

/* A decimal number up to MAX_RANKS; moves behind it. */
static enum tiara_err parse_number(struct parse *p, int *number_out)
{
    int number = 0;

    if (*p->at < '0' || *p->at > '9')
        return parse_fail_form(p);
    for (; *p->at >= '0' && *p->at <= '9'; p->at++) {
        number = number * 10 + (*p->at - '0');
        if (number > MAX_RANKS)
            return parse_fail_large(p);
    }
    *number_out = number;
    return TIARA_OK;
}

/* Appends @count ranks of @colour. */
static enum tiara_err colours_add(struct parse *p, uint64_t colour, size_t count)
{
    if (p->ncolours + count > MAX_RANKS)
        return parse_fail_large(p);
    if (p->ncolours + count > p->capacity) {
        size_t capacity = 2 * (p->ncolours + count);
        uint64_t *grown = tiara_realloc(p->colour, capacity, sizeof(*grown));

        if (grown == NULL)
            return TIARA_ERR_NOMEM;
        p->colour = grown;
        p->capacity = capacity;
    }
    for (size_t i = 0; i < count; i++)
        p->colour[p->ncolours++] = colour;
    return TIARA_OK;
}

/* "2x4" or "2x4:rr", of which @nodes and the x are read. */
static enum tiara_err parse_grid(struct parse *p, int nodes)
{
    int locals;
    bool dealt;
    enum tiara_err err = parse_number(p, &locals);

    if (err != TIARA_OK)
        return err;
    dealt = strcmp(p->at, ":rr") == 0;
    if (!dealt && *p->at != '\0')
        return parse_fail_form(p);
    if (nodes == 0 || locals == 0)
        return parse_fail(p, ": there must be at least one node of at least one rank");
    if ((int64_t)nodes * locals > MAX_RANKS)
        return parse_fail_large(p);
    for (int rank = 0; rank < nodes * locals && err == TIARA_OK; rank++)
        err = colours_add(p, (uint64_t)(dealt ? rank % nodes : rank / locals), 1);
    return err;
}

/* "3+1", a size per node (a lone number is one node), or "0,0,1,1", a node per rank: by what stands
 * between numbers. @number, the first, is read. */
static enum tiara_err parse_list(struct parse *p, int number)
{
    char between = *p->at == ',' ? ',' : '+';
    enum tiara_err err = TIARA_OK;

    for (uint64_t node = 0; err == TIARA_OK; node++) {
        if (between == '+' && number == 0)
            return parse_fail(p, ": a node must have at least one rank");
        err = between == '+' ? colours_add(p, node, (size_t)number)
                             : colours_add(p, (uint64_t)number, 1);
        if (err != TIARA_OK || *p->at == '\0')
            return err;
        if (*p->at++ != between)
            return parse_fail_form(p);
        err = parse_number(p, &number);
    }
    return err;
}

/* The first number and what follows it tell the form. */
static enum tiara_err parse_text(struct parse *p)
{
    int first;
    enum tiara_err err = parse_number(p, &first);

    if (err != TIARA_OK || *p->at != 'x')
        return err != TIARA_OK ? err : parse_list(p, first);
    p->at++;
    return parse_grid(p, first);
}

enum tiara_err tiara_layout_parse(
    struct tiara_layout *layout_out, const char *text, int nranks, char *why, size_t why_size)
{
    struct parse p = {.text = text, .at = text, .why = why, .why_size = why_size};
    char rest[64];
    enum tiara_err err;

    memset(layout_out, 0, sizeof(*layout_out));
    snprintf(why, why_size, "%s", "");
    err = parse_text(&p);
    if (err == TIARA_OK && nranks != 0 && p.ncolours != (size_t)nranks) {
        snprintf(rest, sizeof(rest), " has %zu rank%s, the communicator has %d", p.ncolours,
            p.ncolours == 1 ? "" : "s", nranks);
        err = parse_fail(&p, rest);
    }
    if (err == TIARA_OK)
        err = tiara_layout_init(layout_out, (int)p.ncolours, p.colour);
    tiara_free(p.colour);
    return err;
}
