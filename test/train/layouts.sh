#!/bin/bash
# The examples of training on several layouts: the loss is the same but for rounding, and a repeated run gives the very
# same bits; with TIARA_REPRODUCIBLE=1, so does every layout.
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"

# Only the training: what else the programs check, their own runs do.
export TIARA_TEST_SWEEP=-1

# train PROGRAM LAYOUT [A=B]...: leaves the loss in $loss, as a hexadecimal number.
train() {
    local program=$1
    shift
    # shellcheck disable=SC2163
    (export "${@/#/TIARA_}" && run 4 "test/train/$program" && echo "$status" >"$work/status")
    status=$(cat "$work/status")
    what="$program with $*"
    expect_status 0
    loss=$(sed -n "s/^$program: loss \([^ ]*\) .* on 4 ranks\$/\1/p" "$work/out")
    [ -n "$loss" ] || complain 'it does not tell the loss'
}

# expect_near A B: hexadecimal numbers that differ by less than 1e-9 of them; the order of additions was seen to change
# 1e-13.
expect_near() {
    awk -v a="$(printf '%.17g' "$1")" -v b="$(printf '%.17g' "$2")" \
        'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (1e-9 * a) ^ 2) }' || complain "the loss is $2, and on one node $1"
}
expect_equal() {
    [ "$1" = "$2" ] || complain "the loss is $2, and was $1 before"
}

for program in ddp zero; do
    train $program LAYOUT=1x4
    one_node=$loss
    for layout in 2x2 4x1; do
        train $program LAYOUT=$layout PROGRESS=call
        expect_near "$one_node" "$loss"
    done
    # Of 4x1, which was the last one.
    before=$loss
    train $program LAYOUT=4x1 PROGRESS=call
    expect_equal "$before" "$loss"

    train $program LAYOUT=1x4 REPRODUCIBLE=1
    before=$loss
    train $program LAYOUT=2x2 PROGRESS=call REPRODUCIBLE=1
    expect_equal "$before" "$loss"
done
finish
