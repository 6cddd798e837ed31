/*
 * MPI_Request_get_status_any, _all and _some of MPI 4.1, with requests that Tiara serves, also
 * persistent ones: what is not over is not complete, nor inactive. By itself it is for an MPI that
 * has them; p_tools.sh runs it on another, with a tool that stands for them.
 *
 * tiara-test: mpirun 2
 * tiara-test: mpirun 2 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
 */
#include "mpi_run.h"
#include "s_suite.h"

#include <dlfcn.h>

#if defined(HAVE_MPI_ALLREDUCE_INIT)
#define ALLREDUCE_INIT MPI_Allreduce_init
#elif defined(HAVE_MPIX_ALLREDUCE_INIT)
#include <mpi-ext.h>
#define ALLREDUCE_INIT MPIX_Allreduce_init
#endif

static int (*look_any)(int, const MPI_Request *, int *, int *, MPI_Status *);
static int (*look_all)(int, const MPI_Request *, int *, MPI_Status *);
static int (*look_some)(int, const MPI_Request *, int *, int *, MPI_Status *);

/* The same in Fortran's terms, where the MPI or the library has its calls. */
static void check_pending_in_fortran(const MPI_Request list[2])
{
#ifdef OPEN_MPI
    MPI_Fint two = 2, index = -2, flag = -1, some = -1, err = -1, indices[2],
             requests[2] = {MPI_Request_c2f(list[0]), MPI_Request_c2f(list[1])};
    void (*any)(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *),
        (*some_of)(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *),
        (*all)(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);
    *(void **)&any = dlsym(RTLD_DEFAULT, "mpi_request_get_status_any_");
    *(void **)&all = dlsym(RTLD_DEFAULT, "mpi_request_get_status_all_");
    *(void **)&some_of = dlsym(RTLD_DEFAULT, "mpi_request_get_status_some_");
    if (!any || !all || !some_of)
        return;
    any(&two, requests, &index, &flag, MPI_F_STATUS_IGNORE, &err);
    mt_check(err == MPI_SUCCESS && flag == 0, "Fortran, any: flag %d, error %d", flag, err);
    flag = err = -1;
    all(&two, requests, &flag, MPI_F_STATUSES_IGNORE, &err);
    mt_check(err == MPI_SUCCESS && flag == 0, "Fortran, all: flag %d, error %d", flag, err);
    err = -1;
    some_of(&two, requests, &some, indices, MPI_F_STATUSES_IGNORE, &err);
    mt_check(err == MPI_SUCCESS && some == 0, "Fortran, some: %d, error %d", some, err);
#else
    (void)list;
#endif
}

/* The last rank has not come: nothing is over. */
static void check_pending(const MPI_Request list[2])
{
    int index = -2, flag = -1, some = -1, indices[2];
    look_any(2, list, &index, &flag, MPI_STATUS_IGNORE);
    mt_check(flag == 0, "any: flag %d, index %d", flag, index);
    look_all(2, list, &flag, MPI_STATUSES_IGNORE);
    mt_check(flag == 0, "all: flag %d", flag);
    look_some(2, list, &some, indices, MPI_STATUSES_IGNORE);
    mt_check(some == 0, "some: %d", some);
}

static void check_request(MPI_Request *request, struct s_job *job, bool persistent, int round)
{
    int word = round, flag = 0;
    MPI_Request list[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    mt_note("round %d, persistent %d", round, persistent);
    /* The last rank starts when all others have looked. */
    if (mt_rank == mt_size - 1)
        for (int r = 0; r < mt_size - 1; r++)
            MPI_Recv(&word, 1, MPI_INT, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (persistent)
        MPI_Start(request);
    else
        s_start(job, request);
    list[round % 2] = *request;
    if (mt_rank < mt_size - 1) {
        check_pending(list);
        check_pending_in_fortran(list);
        MPI_Send(&word, 1, MPI_INT, mt_size - 1, 1, MPI_COMM_WORLD);
    }
    while (!flag)
        look_all(2, list, &flag, MPI_STATUSES_IGNORE);
    mt_check(list[round % 2] == *request, "the handle changed");
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

START_TEST(test_status_of_lists)
{
    s_warm_up(MPI_COMM_WORLD);
    for (int round = 0; round < 6; round++) {
        struct s_job job = s_job_new(MPI_COMM_WORLD, round < 3 ? 10 : 9000, (uint64_t)round, false);
        MPI_Request request;
        check_request(&request, &job, false, round);
        s_job_end(&job, MPI_COMM_WORLD);
    }
#ifdef ALLREDUCE_INIT
    for (int round = 0; round < 6; round++) {
        struct s_job job = s_job_new(MPI_COMM_WORLD, 10, (uint64_t)round, false);
        MPI_Request request;
        ALLREDUCE_INIT(s_job_from(&job), job.recv.data, (int)job.count, MPI_INT, MPI_SUM,
            MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        check_request(&request, &job, true, round);
        MPI_Request_free(&request);
        s_job_end(&job, MPI_COMM_WORLD);
    }
#endif
    mt_agree();
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tests = mt_begin(&argc, &argv, "p_status", MPI_THREAD_SINGLE);
    int version, subversion;

    MPI_Get_version(&version, &subversion);
    if (version * 10 + subversion < 41 && !getenv("TIARA_TEST_STATUS"))
        return mt_skip("this MPI is older than 4.1");
    look_any = (int (*)(int, const MPI_Request *, int *, int *, MPI_Status *))dlsym(
        RTLD_DEFAULT, "MPI_Request_get_status_any");
    look_all = (int (*)(int, const MPI_Request *, int *, MPI_Status *))dlsym(
        RTLD_DEFAULT, "MPI_Request_get_status_all");
    look_some = (int (*)(int, const MPI_Request *, int *, int *, MPI_Status *))dlsym(
        RTLD_DEFAULT, "MPI_Request_get_status_some");
    tcase_add_test(tests, test_status_of_lists);
    return mt_end();
}
