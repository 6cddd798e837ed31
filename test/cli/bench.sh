#!/bin/bash
# tiara-bench on the command line: bad options, the columns, the JSON, and that a wrong result is found.
# tiara-test: timeout 240
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"

quick=(-x 1 -i 20)

# expect_sizes SIZE...: the first column; the second is a time.
expect_sizes() {
    local got
    got=$(awk '$1 ~ /^[0-9]+$/ && $2 > 0 { printf "%s ", $1 }' "$work/out")
    [ "$got" = "$* " ] || complain "rows with times for the sizes $* were expected"
}

# ---- Options that are wrong: the option, the value and what is allowed are named ----
expect_refusal 3 tiara-bench "--type 'quux': unknown, known are: char int8" -T quux
expect_refusal 1 tiara-bench "unknown option '-q'" -q
expect_refusal 1 tiara-bench "unknown option '--quux'" --quux
expect_refusal 1 tiara-bench "option '-m' needs a value" -m
expect_refusal 1 tiara-bench "option '--full=3' takes no value" --full=3
expect_refusal 1 tiara-bench "argument 'quux'" quux
expect_refusal 1 tiara-bench "--message-size '8:4': need MAX or MIN:MAX" -m 8:4
expect_refusal 1 tiara-bench "--sizes '4,,8': need" --sizes 4,,8
expect_refusal 1 tiara-bench "--step-factor '1': need a number of 1.1 or more" --step-factor 1
expect_refusal 1 tiara-bench "--iterations '0': need a number from 1" -i 0
expect_refusal 1 tiara-bench "--max-time 'long': need seconds" --max-time long
expect_refusal 1 tiara-bench "--op 'band': not defined for --type 'float'" --op band
expect_refusal 1 tiara-bench "--coll 'bcast': unknown, known are: allreduce" --coll bcast
expect_refusal 1 tiara-bench "--vs 'tiara': unknown, known are: mpi" --vs tiara
expect_refusal 1 tiara-bench "--type 'bfloat16': the MPI below has no such type" --vs mpi -T bfloat16
expect_refusal 1 tiara-bench "--chunk '4x': need a size" --chunk 4x
expect_refusal 2 tiara-bench "--json '$work/none/file': No such file" --json "$work/none/file"
expect_refusal 2 tiara-bench 'no size is large enough' -m 2
expect_refusal 2 tiara-bench 'more elements than MPI can count' --sizes 900G
expect_refusal 2 tiara-bench 'has not so much memory free' --off-cache=900000G

# ---- The table: what scripts that read osu_allreduce look for, and our columns behind it ----
run 2 tiara-bench -m 1:32 "${quick[@]}"
expect_status 0
expect_line out '# TIARA MPI Allreduce Latency Test v0.1'
expect_line out '# Datatype: MPI_FLOAT.'
expect_line out '# Size       Avg Latency(us)'
expect_sizes 4 8 16 32

run 2 tiara-bench --sizes 100,1k -T mpi_char --op max -f -c -t "${quick[@]}"
expect_status 0
columns='# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations        Validation'
expect_line out "$columns  P50 Tail Lat(us)  P90 Tail Lat(us)  P99 Tail Lat(us)"
expect_line out '# Datatype: MPI_CHAR.'
expect_sizes 100 1024
[ "$(awk '$1 ~ /^[0-9]/ && NF == 9 && $5 > 10 && $5 <= 20 && $6 == "Pass"' "$work/out" | wc -l)" -eq 2 ] ||
    complain 'rows of 9 fields, at most 20 iterations and Pass were expected'

run 2 tiara-bench --vs mpi -m 8:8 --bw "${quick[@]}"
expect_status 0
expect_text out 'Avg Latency(us)       Algbw(GB/s)       Busbw(GB/s)       MPI Avg(us)   Tiara/MPI'
expect_sizes 8

run 1 tiara-bench --only mpi -m 8:8 --progress "${quick[@]}"
expect_status 0
expect_line out '# Side: the MPI below, without Tiara.'
expect_line err 'size 8, 1 of 1'

run 1 tiara-bench --version
expect_status 0
expect_line out 'tiara-bench 0.1.0'
run 2 tiara-bench --help
expect_status 0
[ "$(grep -c '^usage: ' "$work/out")" -eq 1 ] || complain 'the help was expected once'

# ---- Every collective, in place and not, on a number of ranks that divides nothing ----
for coll in allreduce reduce_scatter_block allgather; do
    for type in double bfloat16 float8_e5m2; do
        run 3 tiara-bench --coll $coll -T $type --sizes 48,3000 --off-cache=64k "${quick[@]}"
        expect_status 0
        expect_sizes 48 3000
        run 3 tiara-bench --coll $coll -T $type --sizes 48,3000 --in-place "${quick[@]}"
        expect_status 0
    done
done

# ---- A wrong result is found, named and counted against Tiara only ----
run 2 tiara-bench --fault 1:3 -T int --sizes 8,16 -c "${quick[@]}"
expect_status 1
expect_text err 'tiara-bench: wrong result of Tiara, size 16: rank 1, index 3: got '
[ "$(awk '$1 == 8 && $3 == "Pass" || $1 == 16 && $3 == "Fail"' "$work/out" | wc -l)" -eq 2 ] ||
    complain 'Pass at 8 bytes and Fail at 16 were expected'
run 2 tiara-bench --fault 1:3 -T int --sizes 16 --no-validation "${quick[@]}"
expect_status 0
run 2 tiara-bench --fault 1:3 -T int --sizes 16 --only mpi "${quick[@]}"
expect_status 0

# ---- JSON ----
run 2 tiara-bench --vs mpi -m 4:16 --json "$work/file" --leaders 1 "${quick[@]}"
expect_status 0
expect_sizes 4 8 16
run 2 tiara-bench --coll allgather -m 4:16 --json - "${quick[@]}"
expect_status 0
if command -v python3 >/dev/null; then
    python3 - "$work/file" "$work/out" <<'END' || complain 'the JSON is not what was expected'
import json, sys
versus = json.load(open(sys.argv[1]))
assert versus["leaders"] == "1" and versus["ranks"] == 2 and versus["collective"] == "allreduce"
assert [row["bytes"] for row in versus["results"]] == [4, 8, 16]
for row in versus["results"]:
    assert row["tiara"]["valid"] and row["mpi"]["min_us"] <= row["mpi"]["median_us"] <= row["mpi"]["max_us"]
    assert row["ratio"]["p25"] <= row["ratio"]["median"] <= row["ratio"]["p75"]
    assert row["samples"] * row["calls_per_sample"] <= 20
alone = json.load(open(sys.argv[2]))
assert "mpi" not in alone["results"][0] and "op" not in alone and alone["leaders"] is None
END
else
    echo 'the JSON was not checked, as there is no python3'
fi
finish
