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
for launcher in 'mpirun.a:mpirun (Open MPI) 9.9' 'prterun:prterun (PRRTE) 3.0.1' 'mpiexec.b:HYDRA build details' 'srun:slurm 1' 'mpirun.c:something else'; do
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
# Each program of a job gets the variables, also those that stand in a file; a program's own words are left alone.
as --lib "$lib" --dry-run mpirun.a -n 1 ./one : -n 3 ./two
expect_text out "env -u LD_PRELOAD mpirun.a -x LD_PRELOAD=$lib/libtiara-pmpi.so -n 1 ./one : -x LD_PRELOAD=$lib/libtiara-pmpi.so -n 3 ./two "
as --lib "$lib" --dry-run mpiexec.b -n 1 ./one : -n 3 ./two
expect_text out "mpiexec.b -genv LD_PRELOAD $lib/libtiara-pmpi.so -n 1 ./one : -n 3 ./two "
as --lib "$lib" --dry-run prterun -n 1 ./one : -n 3 ./two
expect_text out "prterun -x LD_PRELOAD=$lib/libtiara-pmpi.so -n 1 ./one : -x LD_PRELOAD=$lib/libtiara-pmpi.so -n 3 ./two "
as --lib "$lib" --dry-run srun -n 1 ./one : -n 3 ./two
expect_text out "srun --export=ALL\\,LD_PRELOAD=$lib/libtiara-pmpi.so -n 1 ./one : --export=ALL\\,LD_PRELOAD=$lib/libtiara-pmpi.so -n 3 ./two "
printf '# programs\n-n 1 ./one x\n\n-n 3 ./two' >"$work/programs"
as --lib "$lib" --dry-run mpirun.a --app "$work/programs"
expect_status 0
expect_line out "-x LD_PRELOAD=$lib/libtiara-pmpi.so -n 1 ./one x"
expect_line out "-x LD_PRELOAD=$lib/libtiara-pmpi.so -n 3 ./two"
as --lib "$lib" --dry-run mpirun.a -n 2 ./program --app "$work/none"
expect_text out "-n 2 ./program --app $work/none "
as --lib "$lib" --dry-run srun -n 2 ./program --export=NONE
expect_text out "-n 2 ./program --export=NONE "
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
refuse 'cannot be read' --lib "$lib" mpirun.a --app "$work/none"
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
# shellcheck disable=SC2086
[ "$TIARA_TEST_PRELOAD" != "$lib/libtiara-pmpi.so" ] || {
    as --lib "$lib" --report $TIARA_TEST_MPIRUN -n 1 "$job" allreduce=20 : -n 2 "$job" allreduce=20
    expect_status 0
    expect_calls MPI_Allreduce 60 36 24
    case $($TIARA_TEST_MPIRUN --version 2>&1) in
    *'Open MPI'*)
        printf -- '-n 1 %s allreduce=20\n-n 2 %s allreduce=20\n' "$job" "$job" >"$work/programs"
        as --lib "$lib" --report $TIARA_TEST_MPIRUN --app "$work/programs"
        expect_status 0
        expect_calls MPI_Allreduce 60 36 24
        ;;
    esac
    # The library got nowhere, and the output of the job is that of the job.
    as --lib "$lib" $TIARA_TEST_MPIRUN -n 2 echo none
    expect_status 0
    expect_text err 'tiara-run: no rank on this machine has told'
    [ "$(grep -c '^none$' "$work/out")" -eq 2 ] || complain 'the output of the job is not there'
}
# A signal goes to the job, whose status is the end.
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" != --version ] || { echo HYDRA; exit; }\ntrap "exit 7" TERM\necho >"$TIARA_TEST_READY"\nwhile :; do sleep 0.01; done\n' >"$work/bin/mpiexec.d"
chmod +x "$work/bin/mpiexec.d"
mkfifo "$work/ready"
what='tiara-run and a signal'
TIARA_TEST_READY=$work/ready "$tiara_run" --lib "$lib" mpiexec.d ./program </dev/null >"$work/out" 2>"$work/err" &
running=$!
read -r _ <"$work/ready"
kill -TERM $running
wait $running
status=$?
expect_status 7
# shellcheck disable=SC2016
as --lib "$lib" sh -c 'echo "$LD_PRELOAD"'
[ "$TIARA_TEST_PRELOAD" != "$lib/libtiara-pmpi.so" ] || expect_line out "$lib/libtiara-pmpi.so"
finish
