/*
 * What the shim and the engine of the interposition library know of each other.
 *
 * The shim (libtiara-pmpi.so) is what is preloaded. It refers to no MPI, and can be in any process.
 * Where the process has the MPI that Tiara was built with, it opens the engine
 * (libtiara-pmpi-engine.so), which is linked with libtiara.so and MPI, and hands it the calls of
 * the program. The engine gives back to MPI what it leaves alone, through the table of next
 * definitions, so that other tools that are preloaded behind the shim see it.
 */
#ifndef TIARA_PMPI_ENGINE_H
#define TIARA_PMPI_ENGINE_H

#include <mpi.h>
#include <stdbool.h>

/* A request that is passed by value; shim_calls.c has another type for it. */
#define TIARA_PMPI_REQUEST MPI_Request

/*
 * The C calls in which the engine takes part: X(name, parameters, arguments). The shim defines
 * MPI_<name> for each that the MPI has; MPIX_Allreduce_init stands for Allreduce_init in an MPI
 * that calls it so.
 */
#define TIARA_PMPI_COLLECTIVE_CALLS(X)                                                             \
    X(Allreduce,                                                                                   \
        (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,              \
            MPI_Comm comm),                                                                        \
        (sendbuf, recvbuf, count, type, op, comm))                                                 \
    X(Iallreduce,                                                                                  \
        (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,              \
            MPI_Comm comm, MPI_Request *request),                                                  \
        (sendbuf, recvbuf, count, type, op, comm, request))                                        \
    X(Reduce_scatter_block,                                                                        \
        (const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type, MPI_Op op,          \
            MPI_Comm comm),                                                                        \
        (sendbuf, recvbuf, recvcount, type, op, comm))                                             \
    X(Allgather,                                                                                   \
        (const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,  \
            MPI_Datatype recvtype, MPI_Comm comm),                                                 \
        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))

/* These only some MPIs have. */
#define TIARA_PMPI_LARGE_CALLS(X)                                                                  \
    X(Allreduce_c,                                                                                 \
        (const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,        \
            MPI_Comm comm),                                                                        \
        (sendbuf, recvbuf, count, type, op, comm))                                                 \
    X(Iallreduce_c,                                                                                \
        (const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,        \
            MPI_Comm comm, MPI_Request *request),                                                  \
        (sendbuf, recvbuf, count, type, op, comm, request))                                        \
    X(Allreduce_init_c,                                                                            \
        (const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,        \
            MPI_Comm comm, MPI_Info info, MPI_Request *request),                                   \
        (sendbuf, recvbuf, count, type, op, comm, info, request))
#define TIARA_PMPI_PERSISTENT_CALLS(X)                                                             \
    X(Allreduce_init,                                                                              \
        (const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,              \
            MPI_Comm comm, MPI_Info info, MPI_Request *request),                                   \
        (sendbuf, recvbuf, count, type, op, comm, info, request))

/* The MPI has those of MPI 4.1 if the program calls them. */
#define TIARA_PMPI_REQUEST_CALLS(X)                                                                \
    X(Wait, (MPI_Request * request, MPI_Status * status), (request, status))                       \
    X(Waitall, (int count, MPI_Request requests[], MPI_Status *statuses),                          \
        (count, requests, statuses))                                                               \
    X(Waitany, (int count, MPI_Request requests[], int *index, MPI_Status *status),                \
        (count, requests, index, status))                                                          \
    X(Waitsome,                                                                                    \
        (int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses), \
        (incount, requests, outcount, indices, statuses))                                          \
    X(Test, (MPI_Request * request, int *flag, MPI_Status *status), (request, flag, status))       \
    X(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status *statuses),               \
        (count, requests, flag, statuses))                                                         \
    X(Testany, (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status),     \
        (count, requests, index, flag, status))                                                    \
    X(Testsome,                                                                                    \
        (int incount, MPI_Request requests[], int *outcount, int indices[], MPI_Status *statuses), \
        (incount, requests, outcount, indices, statuses))                                          \
    X(Request_free, (MPI_Request * request), (request))                                            \
    X(Request_get_status, (TIARA_PMPI_REQUEST request, int *flag, MPI_Status *status),             \
        (request, flag, status))                                                                   \
    X(Request_get_status_any,                                                                      \
        (int count, const MPI_Request requests[], int *index, int *flag, MPI_Status *status),      \
        (count, requests, index, flag, status))                                                    \
    X(Request_get_status_all,                                                                      \
        (int count, const MPI_Request requests[], int *flag, MPI_Status *statuses),                \
        (count, requests, flag, statuses))                                                         \
    X(Request_get_status_some,                                                                     \
        (int incount, const MPI_Request requests[], int *outcount, int indices[],                  \
            MPI_Status *statuses),                                                                 \
        (incount, requests, outcount, indices, statuses))                                          \
    X(Start, (MPI_Request * request), (request))                                                   \
    X(Startall, (int count, MPI_Request requests[]), (count, requests))

/* In these the program's attributes are deleted, whose functions may use the communicator. */
#define TIARA_PMPI_COMM_CALLS(X)                                                                   \
    X(Comm_free, (MPI_Comm * comm), (comm))                                                        \
    X(Comm_disconnect, (MPI_Comm * comm), (comm))

#define TIARA_PMPI_CALLS(X)                                                                        \
    TIARA_PMPI_COLLECTIVE_CALLS(X)                                                                 \
    TIARA_PMPI_LARGE_CALLS(X)                                                                      \
    TIARA_PMPI_PERSISTENT_CALLS(X) TIARA_PMPI_REQUEST_CALLS(X) TIARA_PMPI_COMM_CALLS(X)

/* One implementation of them all; NULL for what the MPI does not have. */
struct tiara_pmpi_calls {
#define X(name, parameters, arguments) int(*name) parameters;
    TIARA_PMPI_CALLS(X)
#undef X
};

/* What the shim tells the engine. */
struct tiara_pmpi_host {
    struct tiara_pmpi_calls next; /* what stands behind the shim */
    bool from_init; /* all ranks of MPI_COMM_WORLD are inside MPI_Init, and all have the engine */
    /*
     * all completion calls of the program reach the shim: no other tool in front takes some of them
     */
    bool completes_all;
    void *(*find)(const char *name); /* tiara_shim_next */
};

struct tiara_engine_fortran; /* engine_fortran.h */

/*
 * The engine, as the shim sees it: `tiara_pmpi_engine`, the one symbol of its object.
 * @init:     once, MPI is initialised; @host is valid for ever. False: the engine takes part in
 *            nothing, having said why.
 *            Collective over MPI_COMM_WORLD when host->from_init
 * @finalize: once, when MPI_Finalize begins; no call is handed over afterwards. @together: all
 *     ranks of MPI_COMM_WORLD are there, and
 *            have the engine: then it is collective
 */
struct tiara_engine {
    struct tiara_pmpi_calls calls;
    bool (*init)(const struct tiara_pmpi_host *host);
    void (*finalize)(bool together);
    const struct tiara_engine_fortran *fortran;
};

extern const struct tiara_engine tiara_pmpi_engine;

#endif
