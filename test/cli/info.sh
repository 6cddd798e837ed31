#!/bin/bash
# tiara-info on the command line: bad options, the sections, the table of choices, with and without mpirun.
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"

expect_refusal 3 tiara-info "--type 'quux': unknown, known are: char int8" --type quux
expect_refusal 1 tiara-info "--op 'bor': not defined for --type 'float'" --op bor
expect_refusal 1 tiara-info "--message-size '8:4': need MAX or MIN:MAX" -m 8:4
expect_refusal 1 tiara-info "option '--op' needs a value" --op
expect_refusal 1 tiara-info "unknown option '-q'" -q
expect_refusal 1 tiara-info "unknown option '--quux'" --quux
expect_refusal 1 tiara-info "argument 'quux'" quux

# expect_headings TEXT...: these sections and no others, each once.
expect_headings() {
    local got
    got=$(grep -B 1 -E '^-+$' "$work/out" | grep -vE '^-+$' | paste -sd ' ')
    [ "$got" = "$*" ] || complain "the sections '$*' were expected, and not '$got'"
}

for ranks in 1 2 4; do
    run $ranks tiara-info
    expect_status 0
    expect_headings Build Capabilities Devices Environment Layout Choices State
    expect_text out TIARA_ALGO
    for what_machine_allows in memfd cma futex; do
        grep -qE "^$what_machine_allows +(yes|no)\$" "$work/out" || complain "nothing about $what_machine_allows"
    done
done

run 2 tiara-info --build --layout
expect_status 0
expect_headings Build Layout

# All sizes are covered, in ascending ranges.
run 2 tiara-info --explain --type double -m 1:4k
expect_status 0
expect_headings Choices
expect_line out 'TIARA_Allreduce of MPI_DOUBLE, sum, by bytes'
awk '/^[0-9]/ { first = $1; last = $2 == "-" ? $3 : $1; if (first < 8 || first <= before || last < first) exit 1
        if (before && first != 2 * before) exit 1; before = last }
    END { exit before != 4096 }' "$work/out" || complain 'ranges from 8 to 4096 were expected'

run 2 tiara-info --version
expect_line out 'tiara-info 0.1.0'
run 2 tiara-info --help
[ "$(grep -c '^usage: ' "$work/out")" -eq 1 ] || complain 'the help was expected once'

# Alone, without mpirun.
what='tiara-info --explain without mpirun'
"$TIARA_TEST_BUILD/tiara-info" --explain >"$work/out" 2>"$work/err"
status=$?
expect_status 0
expect_headings Choices
finish
