#!/bin/bash
# What the tests of the programs share: starting one, and complaining. To be sourced; scripts/run-tests sets the
# variables. The test ends with `finish`, which fails it when something was complained about.

: "${TIARA_TEST_BUILD:?run this test with scripts/run-tests}" "${TIARA_TEST_MPIRUN:?}"
command -v "${TIARA_TEST_MPIRUN%% *}" >/dev/null || { echo 'skipped: there is no mpirun'; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
complaints=0
what=''
status=0

# run RANKS PROGRAM [ARG]...: leaves the exit status in $status, the output in $work/out and $work/err.
run() {
    local ranks=$1 program=$2
    shift 2
    what="$program $* on $ranks ranks"
    # shellcheck disable=SC2086
    $TIARA_TEST_MPIRUN -n "$ranks" "$TIARA_TEST_BUILD/$program" "$@" </dev/null >"$work/out" 2>"$work/err"
    status=$?
}

# complain TEXT: about the last run, which is shown.
complain() {
    complaints=$((complaints + 1))
    echo "$what: $1"
    echo "  exit status $status"
    sed 's/^/  out: /' "$work/out"
    sed 's/^/  err: /' "$work/err"
}

# expect_status N
expect_status() {
    [ "$status" -eq "$1" ] || complain "exit status $1 was expected"
}

# expect_line FILE TEXT: a line of out or err is exactly TEXT.
expect_line() {
    grep -qxF -- "$2" "$work/$1" || complain "no line of $1 is '$2'"
}

# expect_text FILE TEXT: TEXT is somewhere in out or err.
expect_text() {
    grep -qF -- "$2" "$work/$1" || complain "'$2' is not in $1"
}

# expect_refusal RANKS PROGRAM TEXT [ARG]...: exit status 2, no output, and one sentence of the program, with TEXT in
# it.
expect_refusal() {
    local ranks=$1 program=$2 text=$3
    shift 3
    run "$ranks" "$program" "$@"
    expect_status 2
    [ ! -s "$work/out" ] || complain 'nothing was expected on standard output'
    [ "$(grep -c "^$program: " "$work/err")" -eq 1 ] || complain 'one sentence was expected, printed once'
    grep "^$program: " "$work/err" | grep -qF -- "$text" || complain "the sentence does not hold '$text'"
}

finish() {
    [ "$complaints" -eq 0 ] || echo "$complaints complaints"
    [ "$complaints" -eq 0 ]
    exit
}
