#!/bin/bash
# The preloaded library in the life of processes: how MPI begins and ends, and children.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"

# ---- Children of ranks: commands by system(), and fork and exec, while Tiara is in use ----
preload 3 TIARA_PMPI_AFTER=0 "$job" allreduce=3 iallreduce=3 ls fork allreduce=3 fork iallreduce=3 ls
expect_status 0
expect_silence

# ---- The end ----
preload 3 TIARA_PMPI_AFTER=0 "$job" allreduce=3 abort=37
expect_status 37
# MPI's launchers have their own idea of a rank that leaves without MPI_Finalize; it must be the same with the library.
start 2 "$job" allreduce=12 leave
before=$status
preload 2 "$job" allreduce=12 leave
expect_status "$before"

# ---- An MPI that was opened for one object only, as Python does ----
preload 3 TIARA_REPORT=1 "$tests/tools/local" "$tests/tools/job.so" allreduce=20 iallreduce=2 gather=1 iallreduce=3
expect_status 0
expect_calls MPI_Allreduce 60 36 24
expect_calls MPI_Iallreduce 15 9 6

# ---- A relative path, and a program that has changed its directory before MPI_Init ----
[ -z "$runtime" ] || finish
what='a relative path'
# shellcheck disable=SC2016
(cd "${library%/*}" && start 2 sh -c 'LD_PRELOAD=./$(basename "$1") TIARA_REPORT=1 exec "$2" allreduce=12' sh "$library" "$job"
    echo "$status" >"$work/status")
status=$(cat "$work/status")
expect_status 0
expect_calls MPI_Allreduce 24 8 16

# ---- Without its engine, and with a part of it ----
mkdir "$work/alone"
cp -L "$library" "$work/alone/libtiara-pmpi.so"
start 3 "LD_PRELOAD=$work/alone/libtiara-pmpi.so" TIARA_REPORT=1 "$job"
expect_status 0
[ "$(grep -c '^tiara: .*MPI calls are not intercepted: .*libtiara-pmpi-engine' "$work/err")" -eq 1 ] ||
    complain 'one line was expected that says what is missing'
# Missing on one rank: nobody has it.
# shellcheck disable=SC2016
start 3 sh -c 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then library=$1; else library=$2; fi; shift 2
    export LD_PRELOAD=$library TIARA_REPORT=1 TIARA_PMPI_AFTER=0; exec "$@"' sh "$work/alone/libtiara-pmpi.so" "$library" "$job"
expect_status 0
expect_silence
finish
