#!/bin/bash
# HPCC, seven benchmarks that check their results: the verdicts are those of the plain run, and all good.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/programs.sh
. "$(dirname "$0")/../harness/programs.sh"
needs_program hpcc

# hpcc_input N P Q: a small problem on P x Q ranks; the program reads it by this name from where it runs
hpcc_input() {
    cat <<END_OF_INPUT
small
small
HPL.out
6
1 problem size
$1
1 block size
32
0 rows first
1 grid of ranks
$2
$3
16.0 threshold
1
2
1
4
1
2
1
1
1
1
1
0
2
64
0
0
1
8
end of what HPL reads
0
0
0
0
END_OF_INPUT
}

# hpcc NAME RANKS P Q WAY: the verdicts of a run, without times, in $work/NAME.verdicts
hpcc() {
    local name=$1 ranks=$2 p=$3 q=$4 way=$5
    mkdir "$work/$name"
    hpcc_input 400 "$p" "$q" >"$work/$name/hpccinf.txt"
    $way "$name" "$ranks" hpcc
    cp "$work/$name/hpccoutf.txt" "$work/out" 2>/dev/null || complain 'hpccoutf.txt was expected'
    # PTRANS has a line with the processor's time too, but not where that was too short to measure.
    sed -n -e 's/^WALL .* \(PASSED\|FAILED\) .*/PTRANS \1/p' \
        -e '/tests completed\|^Found .* errors\|^Node(s) with error\|^Solution Validates\|^Success=\|_Errors\?=\|^||Ax-b/p' \
        "$work/out" >"$work/$name.verdicts"
    expect_text out 'Success=1'
    expect_text out 'Solution Validates'
    [ "$(grep -c 'PASSED' "$work/$name.verdicts")" -eq 6 ] || complain '5 results of PTRANS and one of HPL were expected to pass'
    [ "$(grep -c 'Found 0 errors' "$work/$name.verdicts")" -ge 4 ] || complain 'four tests of random access were expected to find nothing'
    ! grep -E 'FAILED|Found [1-9]|error [1-9]|Errors?=[1-9]|[1-9][0-9]* tests completed and failed|Success=0' "$work/$name.verdicts" ||
        complain 'a check of HPCC failed'
}

for grid in '2 1 2' '4 2 2'; do
    # shellcheck disable=SC2086
    set -- $grid
    hpcc "plain-$1" "$@" plain
    TIARA_PMPI_AFTER=0 hpcc "preloaded-$1" "$@" preloaded
    expect_served "preloaded-$1" MPI_Allreduce
    expect_same "plain-$1.verdicts" "preloaded-$1.verdicts"
done
finish
