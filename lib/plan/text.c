/*
 * The text form of a plan: one line for the plan, one for each op, one to end it.
 *
 *   plan allreduce rank 0 of 2 blocks 2 tmp 1 steps 3
 *   step 1  copy   cell[0..1] <- in[0..1]
 *   step 2  reduce tmp[0] <- cell[0] 1:cell[0] ; wait 1@1 ; await 2 ; post 2 after 1
 *   step 3  send   1 <- cell[1]
 *   step 3  recv   1 -> out[1]
 *   end ; wait 1@3
 *
 * A peer's slice has its owner in front. What the dependency pass derived stands after the
 * semicolons. The reader takes words from the stream and never needs a whole line, however many
 * sources a reduction has.
 */
#include "plan/plan.h"
#include "base/text.h"
#include "plan/array.h"
#include "plan/slice.h"
#include <limits.h>
#include <string.h>

/* No plan has larger numbers, and sums of two stay in an int. */
#define NUMBER_MAX (INT_MAX / 2)

static const char *const coll_names[] = {"allreduce", "reduce-scatter", "allgather"};
static const char *const kind_names[] = {"copy", "reduce", "send", "recv"};
static const char *const buf_names[TIARA_NBUF] = {"in", "out", "cell", "tmp"};

const char *tiara_coll_name(enum tiara_coll coll)
{
    return coll_names[coll];
}

const char *tiara_op_name(enum tiara_op_kind kind)
{
    return kind_names[kind];
}

const char *tiara_buf_name(enum tiara_buf buf)
{
    return buf_names[buf];
}

static void print_slice(const struct tiara_plan *plan, struct tiara_slice s, FILE *to)
{
    if (s.owner != plan->rank)
        fprintf(to, "%d:", s.owner);
    fprintf(to, "%s[%d", buf_names[s.buf], s.first);
    if (s.count > 1)
        fprintf(to, "..%d", s.first + s.count - 1);
    fputc(']', to);
}

static void print_waits(const struct tiara_plan *plan, int first, int n, FILE *to)
{
    if (n > 0)
        fputs(" ; wait", to);
    for (int i = first; i < first + n; i++)
        fprintf(to, " %d@%d", plan->waits[i].peer, plan->waits[i].step);
}

static void print_op(const struct tiara_plan *plan, const struct tiara_op *op, FILE *to)
{
    fprintf(to, "step %-2d %-6s ", op->step, kind_names[op->kind]);
    if (tiara_op_is_async(op))
        fprintf(to, "%d ", op->peer);
    if (op->kind == TIARA_OP_RECV)
        fputs("-> ", to);
    if (tiara_op_writes(op))
        print_slice(plan, op->dst, to);
    if (op->kind != TIARA_OP_RECV)
        fputs(tiara_op_writes(op) ? " <-" : "<-", to);
    for (int i = 0; i < op->nsrc; i++) {
        fputc(' ', to);
        print_slice(plan, plan->srcs[op->src + i], to);
    }
    print_waits(plan, op->wait, op->nwait, to);
    if (op->await > 0)
        fprintf(to, " ; await %d", op->await);
    if (op->post > 0)
        fprintf(to, " ; post %d after %d", op->post, op->post_await);
    fputc('\n', to);
}

void tiara_plan_print(const struct tiara_plan *plan, FILE *to)
{
    fprintf(to, "plan %s rank %d of %d blocks %d tmp %d steps %d%s\n", coll_names[plan->coll],
        plan->rank, plan->nranks, plan->nblocks, plan->tmp_blocks, plan->nsteps,
        plan->single_copy ? " single-copy" : "");
    for (int i = 0; i < plan->nops; i++)
        print_op(plan, &plan->ops[i], to);
    fputs("end", to);
    print_waits(plan, plan->exit_wait, plan->exit_nwait, to);
    fputc('\n', to);
}

/* The stream, one word ahead. */
struct reader {
    FILE *from;
    int line; /* of the word */
    char word[48]; /* "" at the end of a line */
    bool is_end_of_file;
    struct tiara_plan *plan;
    char *why;
    size_t why_size;
    enum tiara_err err;
};

static void next_word(struct reader *in)
{
    size_t n = 0;
    int c = fgetc(in->from);

    if (in->word[0] == '\0' && !in->is_end_of_file)
        in->line++;
    while (c == ' ' || c == '\t')
        c = fgetc(in->from);
    while (c != EOF && c != '\n' && c != ' ' && c != '\t') {
        if (n < sizeof(in->word) - 1)
            in->word[n++] = (char)c;
        c = fgetc(in->from);
    }
    in->word[n] = '\0';
    in->is_end_of_file = c == EOF && n == 0;
    if (c == '\n' && n > 0)
        ungetc(c, in->from);
}

/* Sticky: the first complaint stays. */
static void complain(struct reader *in, const char *wanted)
{
    struct tiara_text text = {in->why, in->why != NULL ? in->why_size : 0, 0};

    if (in->err != TIARA_OK)
        return;
    in->err = TIARA_ERR_ARG;
    if (in->word[0] != '\0')
        tiara_text_add(&text, "line %d: \"%s\" where %s should be", in->line, in->word, wanted);
    else
        tiara_text_add(&text, "line %d: the %s where %s should be", in->line,
            in->is_end_of_file ? "file ends" : "line ends", wanted);
}

/* True, and past it, when the next word is @word. */
static bool take(struct reader *in, const char *word)
{
    if (in->err != TIARA_OK || strcmp(in->word, word) != 0)
        return false;
    next_word(in);
    return true;
}

static void expect(struct reader *in, const char *word, const char *wanted)
{
    if (!take(in, word))
        complain(in, wanted);
}

static void expect_end_of_line(struct reader *in)
{
    if (in->word[0] != '\0')
        complain(in, "the end of the line");
}

/* A number without sign at *@at, which moves past it; -1 when there is none. */
static int take_digits(const char **at)
{
    long long value = 0;
    const char *c = *at;

    while (*c >= '0' && *c <= '9' && value <= NUMBER_MAX)
        value = 10 * value + (*c++ - '0');
    if (c == *at || value > NUMBER_MAX)
        return -1;
    *at = c;
    return (int)value;
}

/* A word that is a number; 0 and a complaint when it is none. */
static int take_number(struct reader *in, const char *wanted)
{
    const char *at = in->word;
    int value = take_digits(&at);

    if (in->err != TIARA_OK || value < 0 || *at != '\0') {
        complain(in, wanted);
        return 0;
    }
    next_word(in);
    return value;
}

static int take_named_number(struct reader *in, const char *name)
{
    char wanted[64];

    expect(in, name, name);
    snprintf(wanted, sizeof(wanted), "the number after \"%s\"", name);
    return take_number(in, wanted);
}

/* Index of the word in @names[@n]; 0 and a complaint when it is none of them. */
static int take_choice(struct reader *in, const char *const *names, int n, const char *wanted)
{
    for (int i = 0; i < n; i++) {
        if (take(in, names[i]))
            return i;
    }
    complain(in, wanted);
    return 0;
}

/* "cell" at *@at, which moves past it; TIARA_NBUF when there is no buffer's name. */
static enum tiara_buf take_buf(const char **at)
{
    for (int i = 0; i < TIARA_NBUF; i++) {
        size_t n = strlen(buf_names[i]);

        if (strncmp(*at, buf_names[i], n) == 0 && (*at)[n] == '[') {
            *at += n + 1;
            return (enum tiara_buf)i;
        }
    }
    return TIARA_NBUF;
}

/* [owner:]buf[first] or [owner:]buf[first..last] in @word. */
static bool read_slice(const char *word, int rank, struct tiara_slice *slice_out)
{
    const char *at = word;
    int owner = rank, first, last;
    enum tiara_buf buf;

    if (*at >= '0' && *at <= '9') {
        owner = take_digits(&at);
        if (owner < 0 || *at++ != ':')
            return false;
    }
    buf = take_buf(&at);
    first = take_digits(&at);
    last = first;
    if (strncmp(at, "..", 2) == 0) {
        at += 2;
        last = take_digits(&at);
    }
    if (buf == TIARA_NBUF || first < 0 || last < first || strcmp(at, "]") != 0)
        return false;
    *slice_out = tiara_slice(owner, buf, first, last - first + 1);
    return true;
}

static struct tiara_slice take_slice(struct reader *in)
{
    struct tiara_slice slice = {0};

    if (in->err == TIARA_OK && read_slice(in->word, in->plan->rank, &slice))
        next_word(in);
    else
        complain(in, "a slice (cell[0], in[0..3], 2:cell[1])");
    return slice;
}

/* Before the end of the line or a semicolon. */
static bool is_more(const struct reader *in)
{
    return in->err == TIARA_OK && in->word[0] != '\0' && strcmp(in->word, ";") != 0;
}

static void append_wait(struct reader *in, struct tiara_plan_wait wait)
{
    struct tiara_plan *plan = in->plan;

    if (tiara_array_grow(&plan->waits, &plan->cap_waits, plan->nwaits, sizeof(wait)))
        plan->waits[plan->nwaits++] = wait;
    else
        in->err = TIARA_ERR_NOMEM;
}

/* After "; wait": peer@step, up to the end of the line or a semicolon. Returns how many. */
static int take_waits(struct reader *in)
{
    int n = 0;

    while (is_more(in)) {
        const char *at = in->word;
        struct tiara_plan_wait wait = {.peer = take_digits(&at), .step = -1};

        if (*at == '@') {
            at++;
            wait.step = take_digits(&at);
        }
        if (wait.peer < 0 || wait.step < 0 || *at != '\0') {
            complain(in, "a wait (peer@step)");
            return 0;
        }
        append_wait(in, wait);
        next_word(in);
        n++;
    }
    return n;
}

/* What the dependency pass derived for @op. */
static void take_derived(struct reader *in, struct tiara_op *op)
{
    op->wait = in->plan->nwaits;
    while (take(in, ";")) {
        if (take(in, "wait")) {
            op->nwait += take_waits(in);
        } else if (take(in, "await")) {
            op->await = take_number(in, "a number of sends and receives");
        } else {
            op->post = take_named_number(in, "post");
            op->post_await = take_named_number(in, "after");
        }
    }
}

/* From the kind to the slices; appends the op. */
static void take_body(struct reader *in, int step)
{
    enum tiara_op_kind kind =
        (enum tiara_op_kind)take_choice(in, kind_names, 4, "copy, reduce, send or recv");
    struct tiara_slice dst = {0}, src = {0};
    int peer = -1;

    if (kind == TIARA_OP_SEND || kind == TIARA_OP_RECV)
        peer = take_number(in, "a peer");
    if (kind == TIARA_OP_RECV)
        expect(in, "->", "->");
    if (kind != TIARA_OP_SEND)
        dst = take_slice(in);
    if (kind != TIARA_OP_RECV) {
        expect(in, "<-", "<-");
        src = take_slice(in);
    }
    if (in->err != TIARA_OK)
        return;
    if (kind == TIARA_OP_RECV) {
        tiara_plan_recv(in->plan, step, peer, dst);
    } else if (kind == TIARA_OP_SEND) {
        tiara_plan_send(in->plan, step, peer, src);
    } else if (!is_more(in)) {
        tiara_plan_copy(in->plan, step, dst, src);
    } else {
        tiara_plan_fold(in->plan, step, dst);
        tiara_plan_source(in->plan, src);
        while (is_more(in))
            tiara_plan_source(in->plan, take_slice(in));
        if (kind == TIARA_OP_COPY)
            complain(in, "one source only");
    }
}

static void take_op(struct reader *in)
{
    int before = in->plan->nops, step = take_number(in, "a step");

    take_body(in, step);
    if (in->plan->sticky == TIARA_ERR_PLAN)
        complain(in, "an op of the same or a later step");
    else if (in->plan->sticky != TIARA_OK)
        in->err = in->plan->sticky;
    else if (in->plan->nops == before)
        complain(in, "an op that does something");
    if (in->err != TIARA_OK)
        return;
    take_derived(in, &in->plan->ops[before]);
    expect_end_of_line(in);
    next_word(in);
}

/* The first line. Returns the number of steps. */
static int take_header(struct reader *in)
{
    enum tiara_coll coll;
    int rank, nranks, nblocks, nsteps;

    expect(in, "plan", "plan");
    coll = (enum tiara_coll)take_choice(in, coll_names, 3, "a collective");
    rank = take_named_number(in, "rank");
    nranks = take_named_number(in, "of");
    nblocks = take_named_number(in, "blocks");
    tiara_plan_init(in->plan, coll, rank, nranks, nblocks);
    tiara_plan_tmp(in->plan, take_named_number(in, "tmp"));
    nsteps = take_named_number(in, "steps");
    in->plan->single_copy = take(in, "single-copy");
    expect_end_of_line(in);
    next_word(in);
    return nsteps;
}

static void read_plan(struct reader *in)
{
    struct tiara_plan *plan = in->plan;
    int nsteps;

    next_word(in);
    nsteps = take_header(in);
    while (take(in, "step"))
        take_op(in);
    expect(in, "end", "step or end");
    plan->exit_wait = plan->nwaits;
    if (take(in, ";")) {
        expect(in, "wait", "wait");
        plan->exit_nwait = take_waits(in);
    }
    expect_end_of_line(in);
    if (in->err == TIARA_OK && plan->nops > 0 && plan->ops[plan->nops - 1].step > nsteps)
        complain(in, "a plan of as many steps as its first line says");
    if (in->err == TIARA_OK)
        in->err = tiara_plan_finish(plan, nsteps);
}

enum tiara_err tiara_plan_parse(struct tiara_plan *plan_out, FILE *from, char *why, size_t why_size)
{
    struct reader in = {.from = from, .plan = plan_out, .why = why, .why_size = why_size};

    memset(plan_out, 0, sizeof(*plan_out));
    if (why != NULL && why_size > 0)
        why[0] = '\0';
    read_plan(&in);
    if (in.err != TIARA_OK)
        tiara_plan_fini(plan_out);
    return in.err;
}
