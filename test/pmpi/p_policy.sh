#!/bin/bash
# Which calls the preloaded library takes over, seen through its report.
# tiara-test: env TIARA_TEST_PRELOAD=1
# tiara-test: timeout 200
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"

first='first calls on their communicator'

# ---- Calls on a communicator are counted, of all kinds alike; the first 8 are left to MPI ----
preload 3 TIARA_REPORT=1 "$job" allreduce=7
expect_status 0
expect_calls MPI_Allreduce 21 0 21
expect_left 21 "$first"
preload 3 TIARA_REPORT=1 "$job" allreduce=11 scatter=5
expect_status 0
expect_calls MPI_Allreduce 33 9 24
expect_calls MPI_Reduce_scatter_block 15 15 0
preload 3 TIARA_REPORT=1 "$job" scatter=3 gather=3 allreduce=4
expect_calls MPI_Reduce_scatter_block 9 0 9
expect_calls MPI_Allgather 9 0 9
expect_calls MPI_Allreduce 12 6 6

# ---- TIARA_PMPI_AFTER ----
preload 2 TIARA_REPORT=1 TIARA_PMPI_AFTER=0 "$job" allreduce=5 gather=1
expect_calls MPI_Allreduce 10 10 0
expect_calls MPI_Allgather 2 2 0
preload 2 TIARA_REPORT=1 TIARA_PMPI_AFTER=3 "$job" allreduce=5
expect_calls MPI_Allreduce 10 4 6
preload 2 TIARA_REPORT=1 TIARA_PMPI_AFTER=1000000 "$job" allreduce=50
expect_calls MPI_Allreduce 100 0 100

# ---- Rank 0 decides where ranks differ: else some would call Tiara, and others MPI ----
# shellcheck disable=SC2016
preload 3 sh -c 'TIARA_REPORT=1 TIARA_PMPI_AFTER=$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} * 3 + 2)) exec "$0" "$@"' "$job" allreduce=6
expect_status 0
expect_calls MPI_Allreduce 18 12 6

# ---- Each communicator by itself; a copy begins anew ----
preload 2 TIARA_REPORT=1 "$job" allreduce=10 dup allreduce=10 world allreduce=1
expect_calls MPI_Allreduce 42 10 32

# ---- What is always left to MPI ----
preload 4 TIARA_REPORT=1 TIARA_PMPI_AFTER=0 "$job" self allreduce=3 inter allreduce=2 world empty=5
expect_status 0
expect_calls MPI_Allreduce 40 0 40
expect_left 12 'on a communicator of one rank'
expect_left 8 'on an intercommunicator'
expect_left 20 'without elements'
preload 3 TIARA_REPORT=1 TIARA_PMPI_AFTER=0 TIARA_ALGO=mpi "$job" allreduce=4
expect_calls MPI_Allreduce 12 0 12
expect_left 12 'declined by Tiara'

# ---- Nonblocking calls: after a blocking one has made what they need ----
preload 3 TIARA_REPORT=1 TIARA_PMPI_AFTER=0 "$job" iallreduce=4 allreduce=1 iallreduce=6
expect_status 0
expect_calls MPI_Iallreduce 30 18 12
expect_left 12 'nonblocking, before a blocking call made what that needs'
preload 3 TIARA_REPORT=1 "$job" iallreduce=10 allreduce=1 iallreduce=2
expect_calls MPI_Iallreduce 36 6 30
expect_left 24 "$first"

# ---- Off ----
preload 3 TIARA_REPORT=1 TIARA_PMPI=off "$job"
expect_status 0
expect_silence
# One rank that wants it off is enough.
# shellcheck disable=SC2016
preload 3 sh -c 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 2 ]; then export TIARA_PMPI=off; fi; TIARA_REPORT=1 exec "$0" "$@"' "$job"
expect_status 0
expect_silence
finish
