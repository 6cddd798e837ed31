#!/bin/bash
# The library beside another preloaded tool, before it and behind it.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"

# ---- The tool behind: it sees what is left to MPI, and the end ----
start 2 "$(behind count)" TIARA_REPORT=1 "$job" allreduce=20
expect_status 0
expect_calls MPI_Allreduce 40 24 16
expect_line err 'count: 8 allreduces, 0 waits'
start 2 "$(behind count)" "$job" allreduce=3 iallreduce=4
expect_status 0
expect_line err 'count: 3 allreduces, 4 waits'
start 2 "$(behind count)" TIARA_REPORT=1 TIARA_PMPI_AFTER=0 "$job" iallreduce=1 allreduce=1 iallreduce=5
expect_status 0
expect_calls MPI_Iallreduce 12 10 2
expect_line err 'count: 0 allreduces, 6 waits'
start 2 "$(behind count)" TIARA_PMPI=off "$job" allreduce=20
expect_line err 'count: 20 allreduces, 0 waits'
start 2 "$(behind init)" TIARA_REPORT=1 "$job" allreduce=20
expect_status 0
expect_calls MPI_Allreduce 40 24 16
[ "$(grep -c '^init: ' "$work/err")" -eq 4 ] || complain 'the tool was not told of the begin and the end'

# Calls of MPI 4.1, which the tool has where the MPI does not.
start 3 "$(behind status)" TIARA_TEST_STATUS=1 TIARA_PMPI_AFTER=0 "$tests/p_status"
expect_status 0

# ---- The tool in front: the library sees what it does not take ----
# It passes all-reduces on by the PMPI_ name, and takes MPI_Wait: so nonblocking calls, which the library could not
# complete, are MPI's.
start 2 "$(in_front count)" TIARA_PMPI_AFTER=0 "$job" allreduce=20 iallreduce=3 gather=1 iallreduce=3
expect_status 0
expect_line err 'count: 20 allreduces, 6 waits'
# It takes MPI_Finalize from the library, too: no report, and still a good end.
expect_silence
# A tool that begins and ends MPI by itself, and leaves the calls.
start 2 "$(in_front init)" TIARA_PMPI_AFTER=0 TIARA_PMPI=verify "$job" allreduce=20 scatter=3 gather=3 iallreduce=2
expect_status 0
[ "$(grep -c '^init: ' "$work/err")" -eq 4 ] || complain 'the tool was not told of the begin and the end'
# One that takes the begin alone, where Hydra cannot tell whether all have the library: the ranks find out one by one
# that MPI runs, and the report is that of all, also when one of them called nothing.
start 3 "$(in_front begin)" TIARA_PMPI_EVERYWHERE=1 TIARA_REPORT=1 "$job" allreduce=20 scatter=2
expect_status 0
expect_calls MPI_Allreduce 60 36 24
start 2 "$(in_front begin)" TIARA_PMPI_EVERYWHERE=1 TIARA_REPORT=1 "$job" half
expect_status 0
expect_text err 'tiara: report of 2 ranks'
# shellcheck disable=SC2016
start 2 "$(in_front begin)" TIARA_PMPI_EVERYWHERE=1 sh -c \
    'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then export TIARA_PMPI=off; fi; TIARA_REPORT=1 exec "$0" "$@"' "$job" allreduce=3
expect_status 0
expect_silence
start 2 "$(in_front init wrong)" TIARA_PMPI_AFTER=0 "$job" scatter=5 gather=3
expect_status 0
finish
