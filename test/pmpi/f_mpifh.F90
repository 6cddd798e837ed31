! mpif.h: no interfaces, handles are integers. f_body.inc says what is done.
!
! tiara-test: mpirun 4
! tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
#define COMM integer
#define DATATYPE integer
#define OP integer
#define REQUEST integer
#define STATUS(s) integer :: s(MPI_STATUS_SIZE)
#define STATUSES(s, n) integer :: s(MPI_STATUS_SIZE, n)
#define SOURCE(s) s(MPI_SOURCE)
#define SOURCES(s, k) s(MPI_SOURCE, k)
#define TAG(s) s(MPI_TAG)
#define TAGS(s, k) s(MPI_TAG, k)
#define IERR ,ierr
#define IERR1 ierr

subroutine f_multiply(left, inout, length, datatype_)
  implicit none
  integer, intent(in) :: length, datatype_
  integer, intent(in) :: left(2, 2, length)
  integer, intent(inout) :: inout(2, 2, length)
  integer :: i
  do i = 1, length
    inout(:, :, i) = modulo(matmul(left(:, :, i), inout(:, :, i)), 1009)
  end do
end subroutine

program f_mpifh
  implicit none
  include 'mpif.h'
  external :: f_multiply
#include "f_body.inc"
end program
