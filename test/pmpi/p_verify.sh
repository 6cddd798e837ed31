#!/bin/bash
# TIARA_PMPI=verify: right results are silent, a wrong one is shown, and the program gets MPI's.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"

words='allreduce=12 doubles=4 scatter=3 gather=3 large=2 iallreduce=4 dup allreduce=9'
# shellcheck disable=SC2086
preload 3 TIARA_PMPI=verify "$job" $words
expect_status 0
# 4 + 4 + 3 + 3 + 2 + 3 (of the nonblocking ones, until a blocking call comes, none) + 1, on each of 3 ranks.
expect_line err 'tiara: verify: 51 calls compared, 0 differ, 0 could not be compared'
[ "$(grep -c '^tiara' "$work/err")" -eq 1 ] || complain 'one line was expected of Tiara'
preload 3 TIARA_PMPI=verify TIARA_PMPI_AFTER=0 "$job" iallreduce=1 allreduce=1 iallreduce=5
expect_line err 'tiara: verify: 18 calls compared, 0 differ, 0 could not be compared'

# ---- An MPI that computes wrongly, behind the library ----
# The program must get MPI's result, wrong as it is, and so complains itself.
start 3 "$(behind wrong)" TIARA_PMPI=verify "$job" allreduce=12
[ "$status" -ne 0 ] || complain 'the program got another result than MPI gave'
expect_text err 'p_job: rank 1: wrong: MPI_Allreduce, call 1'
expect_line err 'tiara: verify: 12 calls compared, 4 differ, 0 could not be compared'
[ "$(grep -c '^tiara: .*by MPI and' "$work/err")" -eq 1 ] || complain 'the first difference, and it alone, should be shown'
grep -qE '^tiara: \[1\] warn: verify: MPI_Allreduce, call 9 on a communicator of 3 ranks: element 2 is 0x[0-9a-f]{8} by MPI and 0x[0-9a-f]{8} by Tiara' \
    "$work/err" || complain 'rank, call and element of the difference are not as expected'
start 3 "$(behind wrong)" TIARA_PMPI=verify TIARA_PMPI_AFTER=0 "$job" iallreduce=1 doubles=1 iallreduce=2
[ "$status" -ne 0 ] || complain 'the program got another result than MPI gave'
expect_line err 'tiara: verify: 9 calls compared, 2 differ, 0 could not be compared'
grep -q '^tiara: \[1\] warn: verify: MPI_Iallreduce, call 3 on' "$work/err" || complain 'no difference of a nonblocking call'
# Without verify Tiara serves, and the wrong MPI is asked for the first calls only.
start 3 "$(behind wrong)" TIARA_PMPI_AFTER=0 "$job" allreduce=12
expect_status 0
finish
