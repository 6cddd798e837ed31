#!/bin/bash
# Whether ranks share cores is asked of the job, and not of a communicator: its other ranks run on the same cores.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"

cores=''
for ((core = 0, n = 0; core < 1024 && n < 2; core++)); do
    taskset -c $core true 2>/dev/null && cores=$cores,$core && n=$((n + 1))
done
TIARA_TEST_MPIRUN="taskset -c ${cores#,} $TIARA_TEST_MPIRUN"
preload 4 TIARA_LOG=info TIARA_PMPI_AFTER=0 "$job" half allreduce=3
expect_status 0
grep -q 'communicator [0-9]*, 2 ranks .* ranks share cores' "$work/err" || complain '4 ranks have 2 cores'
[ "$(grep -c 'a core for each rank' "$work/err")" -eq 0 ] || complain '4 ranks do not have a core each'
finish
