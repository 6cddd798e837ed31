#!/bin/bash
# tiara-run: the command that it makes of its arguments, for each launcher, and a job that is really run.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/job.sh
. "$(dirname "$0")/../harness/job.sh"
tiara_run=$TIARA_TEST_SOURCE/scripts/tiara-run
lib=$TIARA_TEST_BUILD

# as ARG...: runs tiara-run with these arguments.
as() {
    what="tiara-run $*"
    "$tiara_run" "$@" </dev/null >"$work/out" 2>"$work/err"
    status=$?
}

# Launchers that only say what they are.
mkdir "$work/bin"
for launcher in 'mpirun.a:mpirun (Open MPI) 9.9' 'mpiexec.b:HYDRA build details' 'srun:slurm 1' 'mpirun.c:something else'; do
    printf '#!/bin/sh\necho "%s"\n' "${launcher#*:}" >"$work/bin/${launcher%%:*}"
    chmod +x "$work/bin/${launcher%%:*}"
done
PATH=$work/bin:$PATH

as --lib "$lib" --dry-run mpirun.a -n 4 ./program --report x
expect_status 0
expect_text out "env -u LD_PRELOAD mpirun.a -x LD_PRELOAD=$lib/libtiara-pmpi.so -n 4 ./program --report x "
as --lib "$lib" --dry-run --verify --report mpirun.a -n 4 ./program
expect_text out "env -u LD_PRELOAD mpirun.a -x TIARA_PMPI=verify -x TIARA_REPORT=1 -x LD_PRELOAD=$lib/libtiara-pmpi.so -n 4 ./program "
as "--lib=$lib" --dry-run --off mpiexec.b -n 2 ./program
expect_text out "env -u LD_PRELOAD mpiexec.b -genv TIARA_PMPI off -genv LD_PRELOAD $lib/libtiara-pmpi.so -n 2 ./program "
as --lib "$lib" --dry-run srun -n 2 ./program
expect_text out "env -u LD_PRELOAD srun --export=ALL\\,LD_PRELOAD=$lib/libtiara-pmpi.so -n 2 ./program "
as --lib "$lib" --dry-run --report -- sh -c true
expect_text out "env TIARA_REPORT=1 LD_PRELOAD=$lib/libtiara-pmpi.so sh -c true "
# Another tool keeps its place.
LD_PRELOAD=$tests/tools/count.so as --lib "$lib" --dry-run mpirun.a ./program
expect_text out "-x LD_PRELOAD=$tests/tools/count.so:$lib/libtiara-pmpi.so ./program"

# ---- Wrong usage: status 2, and a sentence ----
refuse() {
    local text=$1
    shift
    as "$@"
    expect_status 2
    expect_text err "$text"
    [ ! -s "$work/out" ] || complain 'nothing was expected on standard output'
}
refuse 'which program'
refuse 'which program' --lib "$lib"
refuse 'there is no option --frobnicate' --frobnicate mpirun
refuse 'exclude each other' --off --verify --lib "$lib" true
refuse 'wants a directory' --lib
refuse 'there is no libtiara-pmpi.so in' --lib "$work" true
refuse 'name the directory with --lib' true
refuse 'there is no program no-such-program' --lib "$lib" no-such-program
refuse 'does not know' --lib "$lib" mpirun.c ./program
refuse '--export' --lib "$lib" srun --export=NONE ./program

# ---- For real ----
# shellcheck disable=SC2086
as --lib "$lib" --report $TIARA_TEST_MPIRUN -n 3 "$job" allreduce=20
[ "$TIARA_TEST_PRELOAD" != "$lib/libtiara-pmpi.so" ] || {
    expect_status 0
    expect_calls MPI_Allreduce 60 36 24
}
# shellcheck disable=SC2086
as --lib "$lib" $TIARA_TEST_MPIRUN -n 2 "$job" allreduce=3 abort=5
[ "$TIARA_TEST_PRELOAD" != "$lib/libtiara-pmpi.so" ] || expect_status 5
# shellcheck disable=SC2016
as --lib "$lib" sh -c 'echo "$LD_PRELOAD"'
[ "$TIARA_TEST_PRELOAD" != "$lib/libtiara-pmpi.so" ] || expect_line out "$lib/libtiara-pmpi.so"
finish
