#!/bin/bash
# libtiara-pmpi.so in processes that are not for it: a program of another MPI, one of none, mpirun itself. They run as
# without.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/programs.sh
. "$(dirname "$0")/../harness/programs.sh"

# ---- No MPI at all: nothing is said ----
for command in 'ls /' 'bash -c :' 'env true'; do
    what="$command, preloaded"
    # shellcheck disable=SC2086
    LD_PRELOAD=$TIARA_TEST_PRELOAD TIARA_REPORT=1 $command >"$work/out" 2>"$work/err"
    status=$?
    expect_status 0
    [ ! -s "$work/err" ] || complain 'nothing was expected on standard error'
done

# ---- mpirun too, when the variable is given to it and not to the ranks ----
what='mpirun with its ranks, preloaded'
# shellcheck disable=SC2086
LD_PRELOAD=$TIARA_TEST_PRELOAD $TIARA_TEST_MPIRUN -n 2 "$TIARA_TEST_BUILD/test/pmpi/r_tiny" </dev/null >"$work/out" 2>"$work/err"
status=$?
expect_status 0
expect_text out 'result '
[ "$(grep -c '^tiara' "$work/err")" -eq 0 ] || complain 'nothing was expected of Tiara'

# ---- Another MPI ----
case $(mpi_of "$TIARA_TEST_BUILD/libtiara.so") in
libmpi.so.*) other=mpich ;;
*) other=openmpi ;;
esac
if ! command -v "mpicc.$other" >/dev/null || ! command -v "mpirun.$other" >/dev/null; then
    finish_reason="there is no mpicc.$other"
else
    "mpicc.$other" -O1 -o "$work/tiny" "$TIARA_TEST_SOURCE/test/pmpi/r_tiny.c" || exit 1
    TIARA_TEST_MPIRUN="mpirun.$other $("$TIARA_TEST_SOURCE/scripts/mpirun-flags" "mpirun.$other")"
    plain "plain-$other" 2 "$work/tiny" 3000
    expect_text out 'result '
    preloaded "preloaded-$other" 2 "$work/tiny" 3000
    # One sentence, of one rank or of each, that names the MPI of the program.
    sentences=$(grep -c '^tiara' "$work/err")
    [ $((sentences == 1 || sentences == 2)) -eq 1 ] || complain 'one sentence of Tiara was expected of a rank'
    grep '^tiara' "$work/err" | grep -qi mpi || complain 'the sentence was expected to name an MPI'
    for side in plain preloaded; do grep '^result' "$work/$side-$other.out" >"$work/$side.result"; done
    expect_same plain.result preloaded.result
fi
[ "$complaints" -gt 0 ] || [ -z "${finish_reason-}" ] || skip "$finish_reason; the rest was as expected"
finish
