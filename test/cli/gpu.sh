#!/bin/bash
# The programs on GPU memory: options that cannot be, and, with the stand-in for the CUDA runtime, what can be without a
# GPU.
# tiara-test: timeout 300
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"

source=$(cd "$(dirname "$0")/../.." && pwd)
quick=(-x 1 -i 5)

# ---- Options that are wrong, whatever the machine has ----
expect_refusal 2 tiara-bench "--device 'gpu': unknown, known are: host cuda" -d gpu
expect_refusal 1 tiara-bench "--stream: needs --device 'cuda'" --stream
expect_refusal 1 tiara-bench '--stream: only allreduce can be ordered in a stream' --stream -d cuda --coll allgather
expect_refusal 1 tiara-bench '--stream: MPI has no calls that are ordered in a stream' --stream -d cuda --only mpi
expect_refusal 1 tiara-bench "NCCL can be measured only with --device 'cuda'" --vs nccl
expect_refusal 1 tiara-bench "NCCL is measured only for --coll 'allreduce'" --only nccl -d cuda --coll allgather
expect_refusal 1 tiara-bench "--type 'int16': NCCL has no such type" --vs nccl -d cuda -T int16
expect_refusal 1 tiara-bench "--op 'bxor': NCCL has no such operator" --vs nccl -d cuda -T int --op bxor
expect_refusal 1 tiara-bench "--vs 'tiara': unknown, known are: mpi nccl" --vs tiara

# ---- Programs start where there is no CUDA; a runtime that is broken is one sentence ----
for program in tiara-bench tiara-info; do
    what="ldd $program" status=0
    ldd "$TIARA_TEST_BUILD/$program" >"$work/out" 2>"$work/err"
    ! grep -qE 'libcuda|libnccl' "$work/out" || complain 'it is linked with CUDA'
done
mkdir "$work/broken"
touch "$work/broken/libcudart.so" "$work/broken/libcudart.so.12" "$work/broken/libcudart.so.13"
LD_LIBRARY_PATH=$work/broken expect_refusal 2 tiara-bench "--device 'cuda': no CUDA runtime can be used: " -d cuda

standin=$TIARA_TEST_BUILD/test/cuda/standin
for file in "$standin/libcudart.so.13" "$standin/libkernels_on_cpu.so" "$TIARA_TEST_BUILD/libtiara-cuda.so"; do
    [ -e "$file" ] && continue
    [ "$complaints" -eq 0 ] || finish
    echo "skipped: ${file##*/} was not built; the options were tested"
    exit 77
done
export LD_LIBRARY_PATH=$standin STANDIN_STRICT=1 TIARA_CUDA=on

# expect_passes COUNT: that many rows, each with a time and Pass.
expect_passes() {
    [ "$(awk '$1 ~ /^[0-9]+$/ && $2 > 0 && $3 == "Pass"' "$work/out" | wc -l)" -eq "$1" ] ||
        complain "$1 rows with Pass were expected"
}

STANDIN_DEVICES=0 expect_refusal 2 tiara-bench "--device 'cuda': cudaGetDeviceCount: " -d cuda
expect_refusal 2 tiara-bench 'NCCL cannot be measured: ' -d cuda --vs nccl

# ---- Every collective validates; the header says where the buffers are, and what MPI is given ----
run 2 tiara-bench -d cuda -m 8:65536 --vs mpi -c "${quick[@]}"
expect_status 0
expect_line out '# TIARA MPI-CUDA Allreduce Latency Test v0.1'
expect_text out '# Buffers: GPU memory; CUDA runtime 13.'
expect_text out '; ranks on the first node 2, GPUs 2.'
expect_text out '# MPI: takes no GPU memory, staged by hand'
expect_line out '# Size       Avg Latency(us)        Validation       MPI Avg(us)   Tiara/MPI'
expect_passes 14
for coll in allreduce reduce_scatter_block allgather; do
    run 3 tiara-bench -d cuda --coll $coll --vs mpi -T double --sizes 48,30000 -c --off-cache=256k "${quick[@]}"
    expect_status 0
    expect_passes 2
    run 3 tiara-bench -d cuda --coll $coll --vs mpi -T double --sizes 48,30000 -c --in-place "${quick[@]}"
    expect_status 0
    expect_passes 2
done
TIARA_CUDA_AWARE=on run 2 tiara-bench -d cuda --only mpi --sizes 64,30000 -c "${quick[@]}"
expect_status 0
expect_line out '# MPI: takes GPU memory.'
expect_passes 2
STANDIN_DEVICES=1 run 2 tiara-bench -d cuda --sizes 64,300000 -c "${quick[@]}"
expect_status 0
expect_text out '; ranks on the first node 2, GPUs 1.'
expect_passes 2

# ---- In a stream ----
run 2 tiara-bench -d cuda --stream --vs mpi --sizes 8,4k,300000 -c "${quick[@]}"
expect_status 0
expect_line out '# Calls: ordered in a stream, the batch waited for.'
expect_passes 3

# ---- What is not right is found: a wrong result, a call of CUDA that fails ----
run 2 tiara-bench -d cuda --fault 1:3 -T int --sizes 8,16 -c "${quick[@]}"
expect_status 1
expect_text err 'tiara-bench: wrong result of Tiara, size 16: rank 1, index 3: got '
STANDIN_FAIL_RANK=1 STANDIN_FAIL=cudaMalloc:1 expect_refusal 2 tiara-bench 'a rank did not get them' -d cuda --sizes 64
expect_refusal 2 tiara-bench 'has not so much memory free' -d cuda --sizes 64 --off-cache=60G

# ---- The JSON, and what tiara-info sees ----
run 2 tiara-bench -d cuda --stream --sizes 64 --json - "${quick[@]}"
expect_status 0
expect_text out '"device": "cuda"'
expect_text out '"stream": true'
run 2 tiara-info --devices
expect_status 0
expect_line out 'Devices'
expect_text out 'device 0: Stand-in GPU'

# ---- gpu-check, where it can see nothing and where it can: a report either way ----
# check_report TEXT: the last report is JSON, and has TEXT in it.
check_report() {
    cp "$work/report" "$work/out"
    grep -qF -- "$1" "$work/report" || complain "'$1' is not in the report"
    command -v python3 >/dev/null || return 0
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/report" 2>/dev/null || complain 'the report is no JSON'
}
gpu_check() {
    what="gpu-check $*"
    MPIRUN=${TIARA_TEST_MPIRUN%% *} "$source/scripts/gpu-check" --build "$TIARA_TEST_BUILD" -o "$work/report" "$@" \
        </dev/null >"$work/out" 2>"$work/err"
    status=$?
}
STANDIN_DEVICES=0 gpu_check
expect_status 2
expect_text err 'gpu-check: no GPU can be used: '
check_report '"cannot_run": "no GPU can be used: '
gpu_check --quick --only machine
expect_status 0
expect_text out 'ok      tiara-info ('
check_report '"gpus": 4'
# A part that fails is recorded, and makes the exit status 1.
STANDIN_FAIL=cudaMalloc:1+ gpu_check --only bench
expect_status 1
check_report '"result": "failed"'
finish
