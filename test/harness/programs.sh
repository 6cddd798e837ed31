#!/bin/bash
# What the tests share that run a program of other people's twice: plain, and with libtiara-pmpi.so. To be sourced.
#
# `plain NAME RANKS COMMAND...` and `preloaded NAME RANKS COMMAND...` leave $work/NAME.out and .err, and the exit status
# in $status. Each runs in a directory of its own, $work/NAME.
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"
: "${TIARA_TEST_PRELOAD:?the test has no line tiara-test: env TIARA_TEST_PRELOAD=1}"
# Of several cores, which the ranks share, each takes one.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

skip() {
    echo "skipped: $*"
    exit 77
}

# The MPI library that an object is linked with, such as libmpi.so.40.
mpi_of() {
    ldd "$1" 2>/dev/null | sed -n 's/^[[:space:]]*\(libmpi\(ch\)\?\.so\.[0-9]*\) =>.*/\1/p' | head -n 1
}

# needs_program COMMAND: skips without it, and where it is of another MPI than Tiara
needs_program() {
    command -v "$1" >/dev/null || skip "there is no $1"
    needs_same_mpi "$1" "$(command -v "$1")"
}

# needs_same_mpi WHAT OBJECT
needs_same_mpi() {
    local ours theirs
    ours=$(mpi_of "$TIARA_TEST_BUILD/libtiara.so") theirs=$(mpi_of "$2")
    [ "$ours" = "$theirs" ] || skip "$1 is of ${theirs:-no MPI}, and this build of $ours"
}

run_named() {
    local name=$1 ranks=$2
    shift 2
    what="$name: $* on $ranks ranks"
    mkdir -p "$work/$name"
    # shellcheck disable=SC2086
    (cd "$work/$name" && $TIARA_TEST_MPIRUN -n "$ranks" "$@") </dev/null >"$work/$name.out" 2>"$work/$name.err"
    status=$?
    cp "$work/$name.out" "$work/out"
    cp "$work/$name.err" "$work/err"
}
plain() {
    run_named "$@"
    expect_status 0
}
preloaded() {
    local name=$1 ranks=$2
    shift 2
    run_named "$name" "$ranks" env LD_PRELOAD="$TIARA_TEST_PRELOAD" TIARA_REPORT=1 "$@"
    expect_status 0
}

# expect_same A B: of two files in $work, named as they are named there
expect_same() {
    diff "$work/$1" "$work/$2" >"$work/diff" 2>&1 && return
    what="$1 and $2"
    head -n 20 "$work/diff"
    complain 'they were expected to be the same'
}

# expect_served NAME CALL...: the report of that run says that Tiara served calls of these kinds, such as MPI_Allreduce
expect_served() {
    local name=$1 call served
    shift
    what="$name: the report"
    for call in "$@"; do
        # The columns: the call, calls, bytes and their unit, by Tiara, left to MPI.
        served=$(awk -v call="$call" '$1 == call && NF == 6 { print $5; exit }' "$work/$name.err" "$work/$name.out")
        [ "${served:-0}" -gt 0 ] || complain "it was expected to say that Tiara served calls of $call"
    done
}
