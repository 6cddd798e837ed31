#!/bin/bash
# The Fortran programs again, with the report of libtiara-pmpi.so: each call that a program says it made was seen
# exactly once, whatever binding it came through, and Tiara served calls of each kind.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"
grep -qx 'HAVE_FORTRAN = yes' "$TIARA_TEST_BUILD/config.mk" || { echo 'skipped: built without a Fortran compiler'; exit 77; }

# program NAME [A=B]...: on 2 ranks, preloaded
program() {
    local name=$1
    shift
    what="$name $*"
    # shellcheck disable=SC2086
    $TIARA_TEST_MPIRUN -n 2 env LD_PRELOAD="$TIARA_TEST_PRELOAD" "$@" "$TIARA_TEST_BUILD/test/pmpi/$name" </dev/null >"$work/out" 2>"$work/err"
    status=$?
    expect_status 0
}

# reported KIND COLUMN: a number of the report's table of calls; 0 when there is no line
reported() {
    awk -v kind="MPI_$1" -v column="$2" 'tolower($1) == tolower(kind) && !done { print $column; done = 1 } END { if (!done) print 0 }' "$work/err"
}

# What the program says, such as "made allreduce 84 iallreduce 113", is of one rank, and the report's numbers of both
# ranks together.
expect_counted() {
    local words kind made
    read -r -a words < <(sed -n 's/^made //p' "$work/out")
    [ ${#words[@]} -gt 0 ] || complain 'the program does not say what it did'
    for ((i = 0; i < ${#words[@]}; i += 2)); do
        kind=${words[i]} made=${words[i + 1]}
        [ "$(reported "$kind" 2)" -eq $((2 * made)) ] || complain "$made calls of $kind by each of 2 ranks are $(reported "$kind" 2) in the report"
        # The columns after the bytes, which are two words.
        [ "$(reported "$kind" 5)" -gt 0 ] || complain "no call of $kind was served"
    done
}

programs='f_mpifh f_usempi f_f08 f_fixed'
! grep -q '^FORTRAN_FLAGS = .*ALLREDUCE_INIT' "$TIARA_TEST_BUILD/config.mk" || programs+=' f_persistent'
for name in $programs; do
    [ -x "$TIARA_TEST_BUILD/test/pmpi/$name" ] || { echo "$name is not built"; exit 1; }
    program "$name" TIARA_PMPI_AFTER=0 TIARA_REPORT=1
    expect_counted
done

# The first calls of a communicator go to MPI, which still sees Fortran's arguments.
program f_f08 TIARA_REPORT=1
expect_counted
expect_text err 'first calls'
program f_mpifh TIARA_PMPI=verify TIARA_PMPI_AFTER=0
grep -q '^tiara: verify: [1-9][0-9]* calls compared, 0 differ' "$work/err" || complain 'verify was to compare calls, and to find them the same'
program f_usempi TIARA_PMPI=off TIARA_REPORT=1
[ ! -s "$work/err" ] || complain 'nothing was expected of a library that is off'
finish
