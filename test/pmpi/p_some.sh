#!/bin/bash
# Jobs in which only some ranks have the library: they run as without it, say so in one line, and wait for nobody.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"

# some RANKS COMMAND...: rank R has the library if the R-th letter of $who is y
some() {
    local ranks=$1
    shift
    what="$* on $ranks ranks, preloaded into $who"
    # shellcheck disable=SC2016,SC2086
    $TIARA_TEST_MPIRUN -n "$ranks" sh -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} preload=$1 who=$2; shift 2
        case $(echo "$who" | cut -c $((rank + 1))) in y) export LD_PRELOAD="$preload" TIARA_REPORT=1 TIARA_PMPI_AFTER=0 ;; esac
        exec "$@"' sh "$list" "$who" "$@" </dev/null >"$work/out" 2>"$work/err"
    status=$?
}

# expect_left_alone HAVE RANKS: that line, nothing else of Tiara, and a good end
expect_left_alone() {
    expect_status 0
    [ "$(grep -c '^tiara' "$work/err")" -eq 1 ] || complain 'one line of Tiara was expected'
    expect_text err "MPI calls are not intercepted: libtiara-pmpi.so is preloaded into $1 of $2 ranks"
}

list=$TIARA_TEST_PRELOAD
for who in ynnn nyyy yyny nnny; do
    some 4 "$job" allreduce=12 iallreduce=3 scatter=2 half allreduce=3
    expect_left_alone "$(echo "$who" | tr -d n | wc -c | awk '{ print $1 - 1 }')" 4
done
who=yyyy
some 4 "$job" allreduce=12
expect_status 0
expect_calls MPI_Allreduce 48 48 0
# Turned off where it is: nothing to say.
who=yn
TIARA_PMPI=off some 2 "$job" allreduce=12
expect_status 0
expect_silence

# Where a tool in front begins MPI, ranks find out when they call something.
list=$(in_front begin)
list=${list#LD_PRELOAD=}
who=yyn
case $($TIARA_TEST_MPIRUN --version 2>&1) in
*'Open MPI'*)
    some 3 "$job" allreduce=12 iallreduce=3
    expect_left_alone 2 3
    ;;
esac

# Two programs of one job, the options of Open MPI's mpirun holding for one of them.
programs() {
    # shellcheck disable=SC2086
    timeout 60 $TIARA_TEST_MPIRUN "$@" </dev/null >"$work/out" 2>"$work/err"
    status=$?
    what="programs $*"
}
case $($TIARA_TEST_MPIRUN --version 2>&1) in
*'Open MPI'*)
    programs -x "LD_PRELOAD=$TIARA_TEST_PRELOAD" -n 1 "$job" allreduce=12 : -n 3 "$job" allreduce=12
    expect_left_alone 1 4
    programs -n 1 "$job" allreduce=12 iallreduce=2 : -x "LD_PRELOAD=$TIARA_TEST_PRELOAD" -n 2 "$job" allreduce=12 iallreduce=2
    expect_left_alone 2 3
    ;;
esac
finish
