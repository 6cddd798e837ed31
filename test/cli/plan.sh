#!/bin/bash
# tiara-plan on the command line: print, prove, cost; a plan file that was tampered with; bad arguments.
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"

# plan ARG...: tiara-plan needs no MPI, and is run without it.
plan() {
    what="tiara-plan $*"
    "$TIARA_TEST_BUILD/tiara-plan" "$@" </dev/null >"$work/out" 2>"$work/err"
    status=$?
}

# refuse TEXT ARG...: a usage error, one sentence with TEXT.
refuse() {
    local text=$1
    shift
    plan "$@"
    expect_status 2
    [ ! -s "$work/out" ] || complain 'nothing was expected on standard output'
    expect_text err "$text"
}

refuse 'quux' print quux 4
refuse '2x' print ring 2x
refuse 'rank' print ring 4 --rank 4
refuse 'frobnicate' frobnicate
refuse '--leaders' print hier 2x2 --leaders many
refuse '--order' print node-ring 3 --order 0,,2
refuse '--order' print node-ring 3 --order 0,1
refuse 'no plans' print node-ring 3 --order 0,1,1

plan list
expect_status 0
for algo in reduce-bcast ring tree double-tree recursive-doubling rabenseifner chain direct node-ring hier hier-chain; do
    expect_text out "$algo"
done

# The ring on 4 ranks: 2(N-1)/N of the vector in 2(N-1) steps, whatever prints it.
plan prove ring 4
expect_status 0
expect_text out 'busiest rank sends 1.5'
expect_text out 'steps 6'

plan prove hier 3+1
expect_status 0

# A ring inside a node, in any order: each rank reads 2(L-1)/L vectors.
plan prove node-ring 4 --order 0,2,3,1
expect_status 0
expect_text out 'reads 1.5 from node peers'
plan print node-ring 4 --order 0,2,3,1 --rank 1
expect_status 0
expect_text out '3:cell'
plan cost all 1x4 --order 0,2,3,1 --bytes 1m
expect_status 0
expect_text out 'node-ring'
plan prove hier 2x4 --node-ring
expect_status 0
expect_text out 'reads 1.5 from node peers'

plan cost all 2x4 --bytes 16m
expect_status 0
expect_text out 'hier'

# What print wrote is proved; with one op less, or one block changed, it is not.
plan print ring 4
expect_status 0
cp "$work/out" "$work/ring.plan"
plan prove --file "$work/ring.plan"
expect_status 0
sed '0,/ reduce /{/ reduce /d}' "$work/ring.plan" >"$work/less.plan"
plan prove --file "$work/less.plan"
expect_status 1
sed '0,/ send /s/\[[0-9]*\]$/[3]/' "$work/ring.plan" >"$work/other.plan"
cmp -s "$work/ring.plan" "$work/other.plan" && complain 'the plan was not changed'
plan prove --file "$work/other.plan"
expect_status 1
finish
