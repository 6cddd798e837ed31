! The module mpi_f08: handles and statuses have types of their own, and ierror is left out of all calls but those that shall fail.
! f_body.inc says what is done.
!
! tiara-test: mpirun 4
! tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
! tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0 TIARA_LAYOUT=2x2 TIARA_PROGRESS=call
#define COMM type(MPI_Comm)
#define DATATYPE type(MPI_Datatype)
#define OP type(MPI_Op)
#define REQUEST type(MPI_Request)
#define STATUS(s) type(MPI_Status) :: s
#define STATUSES(s, n) type(MPI_Status) :: s(n)
#define SOURCE(s) s%MPI_SOURCE
#define SOURCES(s, k) s(k)%MPI_SOURCE
#define TAG(s) s%MPI_TAG
#define TAGS(s, k) s(k)%MPI_TAG
#define IERR
#define IERR1

subroutine f_multiply(left, inout, length, datatype_)
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  type(c_ptr), value :: left, inout
  integer :: length
  type(MPI_Datatype) :: datatype_
  integer, pointer :: a(:, :, :), b(:, :, :)
  integer :: i
  call c_f_pointer(left, a, [2, 2, length])
  call c_f_pointer(inout, b, [2, 2, length])
  do i = 1, length
    b(:, :, i) = modulo(matmul(a(:, :, i), b(:, :, i)), 1009)
  end do
end subroutine

program f_f08
  use mpi_f08
  implicit none
  interface
    subroutine f_multiply(left, inout, length, datatype_)
      use mpi_f08
      use, intrinsic :: iso_c_binding
      type(c_ptr), value :: left, inout
      integer :: length
      type(MPI_Datatype) :: datatype_
    end subroutine
  end interface
#include "f_body.inc"
end program
