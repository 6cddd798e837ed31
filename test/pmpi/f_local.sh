#!/bin/bash
# Fortran that is opened with dlopen, with a scope of its own, by a program that knows no MPI: as Python opens its
# modules. Then nothing of MPI is in the global scope but libtiara-pmpi.so, which must still find what stands behind it,
# and MPI_IN_PLACE.
# tiara-test: env TIARA_TEST_PRELOAD=1
# shellcheck source=test/harness/cli.sh
. "$(dirname "$0")/../harness/cli.sh"

setting() {
    sed -n "s/^$1 = //p" "$TIARA_TEST_BUILD/config.mk"
}
[ "$(setting HAVE_FORTRAN)" = yes ] || { echo 'skipped: built without a Fortran compiler'; exit 77; }
command -v cc >/dev/null || { echo 'skipped: there is no cc'; exit 77; }

# Opens its arguments one after the other, and runs the last.
cat >"$work/open.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int (*program)(int, char **) = NULL;
    void *object = NULL;

    for (int i = 1; i < argc && (object = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL)); i++)
        program = (int (*)(int, char **))dlsym(object, "main");
    if (!object || !program) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return program(argc, argv);
}
END
cc -o "$work/open" "$work/open.c" -ldl || exit 1

# Without MPI_IN_PLACE and its kind: an Open MPI that was opened before Fortran was does not know them.
cat >"$work/simple.F90" <<'END'
program simple
  implicit none
  include 'mpif.h'
  integer :: i, rank, nranks, total, ierr
  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
  call mpi_comm_size(MPI_COMM_WORLD, nranks, ierr)
  do i = 1, 10
    call mpi_allreduce(i * (rank + 1), total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (total /= i * nranks * (nranks + 1) / 2) error stop 1
  end do
  if (rank == 0) print '(a)', 'made allreduce 10'
  call mpi_finalize(ierr)
end program
END

# opened NAME SOURCE [OBJECT]: the program as a shared object, after another object
opened() {
    local name=$1 source=$2 before=${3-} preload
    # shellcheck disable=SC2046
    $(setting MPIFORT) -shared -fPIC -O1 $(setting FORTRAN_FLAGS) -o "$work/$name.so" "$source" || exit 1
    # Whether the MPI itself works that way comes first.
    for preload in '' "$TIARA_TEST_PRELOAD"; do
        what="$name, opened, LD_PRELOAD=$preload"
        # shellcheck disable=SC2086
        $TIARA_TEST_MPIRUN -n 2 env LD_PRELOAD="$preload" TIARA_PMPI_AFTER=0 TIARA_REPORT=1 "$work/open" $before "$work/$name.so" \
            </dev/null >"$work/out" 2>"$work/err"
        status=$?
        expect_status 0
        expect_text out 'made allreduce'
    done
    grep -q '^ *MPI_Allreduce  *[1-9]' "$work/err" || complain 'the report was to say that calls were seen'
}

opened f_mpifh "$TIARA_TEST_SOURCE/test/pmpi/f_mpifh.F90"
opened f_f08 "$TIARA_TEST_SOURCE/test/pmpi/f_f08.F90"
mpi=$(ldd "$TIARA_TEST_BUILD/libtiara.so" | sed -n 's/.*libmpi[^ ]*\.so[^ ]* => \([^ ]*\).*/\1/p' | head -n 1)
opened simple "$work/simple.F90" "$mpi"
finish
