#!/bin/bash
# What the report says: counts over all ranks, sizes, and an estimate that adds up.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"

preload 3 TIARA_REPORT=1 "$job" allreduce=28 large=5 scatter=10 gather=4
expect_status 0
[ ! -s "$work/out" ] || complain 'the report does not belong on standard output'
[ "$(grep -c '^tiara: report of 3 ranks' "$work/err")" -eq 1 ] || complain 'one report of 3 ranks was expected'
# 3 ranks x (28 x 12 + 5 x 800000) bytes; of a scatter and of a gather, the bytes of the whole vector.
expect_text err 'MPI_Allreduce                        99     11 MiB           75           24'
expect_text err 'MPI_Reduce_scatter_block             30    1.1 KiB           30            0'
expect_text err 'MPI_Allgather                        12      432 B           12            0'
# Size classes of what Tiara served: 12 bytes, 36 bytes, 800000 bytes.
for line in 'MPI_Allreduce +16 B +60' 'MPI_Allreduce +1\.0 MiB +15' 'MPI_Reduce_scatter_block +64 B +30' 'MPI_Allgather +64 B +12'; do
    grep -qE "^  $line +[0-9.]+ +[0-9.]+   (saved|lost) [0-9.]+ s\$" "$work/err" || complain "no line of the estimate: $line"
done
# calls x (MPI - Tiara) / ranks, of each line; and their sum.
awk '
    function off(a, b) { return a - b > 3e-6 + 0.01 * (a < 0 ? -a : a) || b - a > 3e-6 + 0.01 * (a < 0 ? -a : a) }
    /(saved|lost) [0-9.]+ s$/ {
        said = ($(NF - 2) == "lost" ? -1 : 1) * $(NF - 1)
        if (off($(NF - 5) * ($(NF - 4) - $(NF - 3)) / 1e6 / 3, said)) { print "a line does not add up: " $0; bad = 1 }
        sum += said; lines++
    }
    /in all, estimated: (saved|lost)/ {
        if (off(sum, ($4 == "lost" ? -1 : 1) * $5)) { print "the sum is not that of the lines: " $0; bad = 1 }
        totals++
    }
    END { if (lines != 4 || totals != 1) { print lines " lines and " totals " totals"; bad = 1 } exit bad }' "$work/err" >"$work/sums" ||
    complain "$(cat "$work/sums")"
grep -q '^  Estimated: ' "$work/err" || complain 'the report does not say that it estimates'

# Nothing is measured where Tiara did nothing, and nothing printed where no report was wanted.
preload 2 TIARA_REPORT=1 "$job" allreduce=2
expect_calls MPI_Allreduce 4 0 4
[ "$(grep -c -e saved -e lost "$work/err")" -eq 0 ] || complain 'an estimate of nothing'
preload 2 "$job"
expect_silence
preload 2 TIARA_REPORT=0 "$job"
expect_silence
# Without MPI_Finalize there is no report, and the job ends as it would.
preload 2 TIARA_REPORT=1 "$job" allreduce=12 leave
expect_silence
finish
