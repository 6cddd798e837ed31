#!/bin/bash
# What the tests of the preloaded library share: jobs of test/pmpi/p_job.c. To be sourced by a test with a line
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"
: "${TIARA_TEST_PRELOAD:?the test has no line tiara-test: env TIARA_TEST_PRELOAD=1}"
tests=$TIARA_TEST_BUILD/test/pmpi
# shellcheck disable=SC2034 # for the tests
job=$tests/p_job
# A sanitizer's runtime, if there is one, stands before everything else.
library=${TIARA_TEST_PRELOAD##*:}
runtime=${TIARA_TEST_PRELOAD%"$library"}

# start RANKS [VARIABLE=VALUE]... COMMAND...: its ranks get the variables; leaves the exit status in $status, the output
# in out and err.
start() {
    local ranks=$1
    shift
    what="$* on $ranks ranks"
    # shellcheck disable=SC2086
    $TIARA_TEST_MPIRUN -n "$ranks" env "$@" </dev/null >"$work/out" 2>"$work/err"
    status=$?
}

# preload RANKS [VARIABLE=VALUE]... COMMAND...: with the library
preload() {
    local ranks=$1
    shift
    start "$ranks" "LD_PRELOAD=$TIARA_TEST_PRELOAD" "$@"
}

# expect_silence: Tiara says nothing
expect_silence() {
    [ "$(grep -c '^tiara' "$work/err")" -eq 0 ] || complain 'nothing was expected of Tiara'
}

# expect_calls CALL CALLS SERVED PASSED: the line of the report, whatever the bytes are
expect_calls() {
    grep -qE "^  $1 +$2 +[0-9.]+ [KMG]?i?B +$3 +$4\$" "$work/err" ||
        complain "$1 was expected: $2 calls, $3 by Tiara, $4 left to MPI"
}

# expect_left CALLS WHY
expect_left() {
    grep -qxF "    left to MPI: $1 $2" "$work/err" || complain "$1 calls were expected to be left to MPI: $2"
}

# in_front TOOL..., behind TOOL...: the variable that preloads these tools of test/pmpi/tools, and the library
in_front() {
    local tool list=$runtime
    for tool in "$@"; do list=$list$tests/tools/$tool.so:; done
    echo "LD_PRELOAD=$list$library"
}
behind() {
    local tool list=$runtime$library
    for tool in "$@"; do list=$list:$tests/tools/$tool.so; done
    echo "LD_PRELOAD=$list"
}
