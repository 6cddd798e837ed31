#!/bin/bash
# Python programs with mpi4py, which opens MPI with dlopen: r_mpi4py.py checks each result; what is printed is the same.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/programs.sh
. "$(dirname "$0")/../harness/programs.sh"

# Debian's Python has Debian's mpi4py, whichever Python comes first in PATH.
python=/usr/bin/python3
module=$("$python" -c 'import numpy, mpi4py, glob, os
print(glob.glob(os.path.dirname(mpi4py.__file__) + "/MPI.*.so")[0])' 2>/dev/null) || skip 'there is no mpi4py, or no NumPy'
needs_same_mpi mpi4py "$module"
program=("$python" -m mpi4py "$TIARA_TEST_SOURCE/test/pmpi/r_mpi4py.py")

# compare RANKS KIND...: calls of these kinds must have been served
compare() {
    local ranks=$1
    shift
    plain "plain-$ranks" "$ranks" "${program[@]}"
    expect_text out ' checks'
    preloaded "preloaded-$ranks" "$ranks" "${program[@]}"
    expect_served "preloaded-$ranks" "$@"
    expect_same "plain-$ranks.out" "preloaded-$ranks.out"
}
compare 2 MPI_Allreduce MPI_Iallreduce MPI_Reduce_scatter_block MPI_Allgather
compare 3 MPI_Allreduce MPI_Iallreduce MPI_Reduce_scatter_block MPI_Allgather
# From the first call, and with two levels.
TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 compare 4 MPI_Allreduce MPI_Reduce_scatter_block
finish
