/*
 * Nonblocking all-reduces of tests: made, started, waited for and checked.
 */
#include "test/mpi/m_requests_case.h"
#include <stdlib.h>
#include <string.h>

struct mt_case mr_case(MPI_Comm comm, uint64_t salt)
{
    static const size_t limits[] = {8, 8, 8, 200, 2000, 20000};
    const struct {
        MPI_Datatype type;
        enum mt_oper oper;
    } pairs[] = {{MPI_DOUBLE, MT_SUM}, {MPI_INT, MT_MAX}, {MPI_FLOAT, MT_AVG},
        {MPI_UINT8_T, MT_BXOR}, {MPI_LONG, MT_SUM}, {TIARA_BFLOAT16, MT_SUM}, {MPI_DOUBLE, MT_PROD},
        {MPI_DOUBLE_INT, MT_MINLOC}};
    uint64_t h = mt_hash(mt_seed(), salt);
    size_t p = h % COUNT_OF(pairs), size = h / 8 % COUNT_OF(limits);
    if (pairs[p].type == MPI_DATATYPE_NULL)
        p = 0;
    return (struct mt_case){.type = mt_type_find(pairs[p].type),
        .oper = pairs[p].oper,
        .count = 1 + (size_t)(h >> 20) % limits[size],
        .in_place = h >> 60 & 1,
        .seed = h,
        .comm = comm};
}

void mr_fill(struct mr_job *job)
{
    const struct mt_case *c = &job->c;
    memset(job->recv.data, 0x7f, job->recv.bytes);
    mt_fill(c->type, c->oper, c->seed, job->rank, 0, c->count,
        c->in_place ? job->recv.data : job->send.data);
    job->digest = mt_digest(job->send.data, job->send.bytes);
}

struct mr_job mr_new(const struct mt_case *c)
{
    struct mr_job job = {.c = *c, .request = TIARA_REQUEST_NULL};
    size_t bytes = c->count * mt_type_extent(c->type);
    MPI_Comm_rank(c->comm, &job.rank);
    MPI_Comm_size(c->comm, &job.nranks);
    job.send = mt_buf_new(c->in_place ? 0 : bytes, 0);
    job.recv = mt_buf_new_result(bytes, 0);
    mr_fill(&job);
    return job;
}

const void *mr_lend(struct mr_job *job)
{
    return job->c.in_place ? MPI_IN_PLACE : mt_buf_lend(&job->send);
}

void mr_start(struct mr_job *job)
{
    const struct mt_case *c = &job->c;
    int err = TIARA_Iallreduce(mr_lend(job), mt_buf_lend(&job->recv), (int)c->count,
        c->type->handle, mt_oper_handle(c->oper), c->comm, &job->request);
    mt_check(err == MPI_SUCCESS && job->request != TIARA_REQUEST_NULL, "%s %s count %zu: error %d",
        c->type->name, mt_oper_name(c->oper), c->count, err);
}

void mr_init(struct mr_job *job)
{
    const struct mt_case *c = &job->c;
    int err = TIARA_Allreduce_init(mr_lend(job), mt_buf_lend(&job->recv), (int)c->count,
        c->type->handle, mt_oper_handle(c->oper), c->comm, MPI_INFO_NULL, &job->request);
    mt_check(err == MPI_SUCCESS && job->request != TIARA_REQUEST_NULL, "%s %s count %zu: error %d",
        c->type->name, mt_oper_name(c->oper), c->count, err);
}

bool mr_check(struct mr_job *job)
{
    const struct mt_case *c = &job->c;
    if (!c->in_place)
        mt_buf_take(&job->send);
    mt_buf_take(&job->recv);
    bool ok = mt_verify(c, job->nranks, 0, c->count, job->recv.data);
    ok &= mt_check(mt_buf_intact(&job->recv) && mt_buf_intact(&job->send),
        "%s %s count %zu: guards damaged", c->type->name, mt_oper_name(c->oper), c->count);
    ok &= mt_check(mt_digest(job->send.data, job->send.bytes) == job->digest,
        "%s %s count %zu: input changed", c->type->name, mt_oper_name(c->oper), c->count);
    return ok;
}

void mr_free(struct mr_job *job)
{
    mt_buf_free(&job->send);
    mt_buf_free(&job->recv);
}

void mr_end(struct mr_job *job)
{
    mr_check(job);
    mr_free(job);
}

void mr_wait(struct mr_job *job)
{
    int err = TIARA_Wait(&job->request, MPI_STATUS_IGNORE);
    mt_check(err == MPI_SUCCESS && job->request == TIARA_REQUEST_NULL, "wait: error %d", err);
    mr_end(job);
}

void mr_start_all(struct mr_job *jobs, int n, MPI_Comm comm, uint64_t salt)
{
    for (int k = 0; k < n; k++) {
        struct mt_case c = mr_case(comm, salt + (uint64_t)k);
        jobs[k] = mr_new(&c);
        mr_start(&jobs[k]);
    }
}

void mr_shuffle(int *order, int n, uint64_t seed)
{
    for (int k = 0; k < n; k++)
        order[k] = k;
    for (int k = n - 1; k > 0; k--) {
        uint64_t h = mt_hash(mt_hash(mt_seed(), seed), (uint64_t)(64 * mt_rank + k));
        int other = (int)(h % (uint64_t)(k + 1)), swap = order[k];
        order[k] = order[other];
        order[other] = swap;
    }
}

bool mr_is_served(MPI_Comm comm)
{
    int answer = TIARA_SERVES_UNKNOWN;
    const char *why = NULL;
    TIARA_Comm_serves(comm, 1, 100, MPI_DOUBLE, MPI_SUM, &answer, &why);
    return answer == TIARA_SERVES_YES && !getenv("TIARA_TEST_MEMORY");
}

bool mr_is_driven(void)
{
    return strcmp(TIARA_Variable("TIARA_PROGRESS"), "call") == 0;
}
