! Persistent all-reduces, by themselves and in lists with persistent messages. ALLREDUCE_INIT is what the MPI calls the call that MPI 4 named
! MPI_ALLREDUCE_INIT; where it has none, the test is skipped.
!
! MPICH 4.0 takes a persistent collective for active for ever: Waitany and its kind report it again and again, Wait waits for it, and Testall
! sometimes finds an error. There, only Waitall is called, of what is active.
!
! tiara-test: mpirun 4
! tiara-test: mpirun 4 TIARA_TEST_PRELOAD=1 TIARA_PMPI_AFTER=0
program f_persistent
  implicit none
  include 'mpif.h'
#ifndef ALLREDUCE_INIT
  integer :: rank, ierr
  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
  if (rank == 0) print '(a)', 'skipped: this MPI has no persistent all-reduce'
  call mpi_finalize(ierr)
  stop 77
#else
  integer, parameter :: n = 3000
  integer :: rank, nranks, left, right, bad, all_bad, ierr, how, made
  integer, asynchronous :: from(n), into(n), in_place(n), word(2)
  integer :: requests(4), given(MPI_STATUS_SIZE, 4), one(MPI_STATUS_SIZE), index, finished, indices(4), k, all_done, rounds, length
  logical :: flag, knows_inactive
  character(MPI_MAX_LIBRARY_VERSION_STRING) :: version

  bad = 0
  made = 0
  call mpi_init(ierr)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, ierr)
  call mpi_comm_size(MPI_COMM_WORLD, nranks, ierr)
  left = mod(rank + nranks - 1, nranks)
  right = mod(rank + 1, nranks)
  call mpi_get_library_version(version, length, ierr)
  knows_inactive = version(1:5) /= 'MPICH'
  rounds = 3
  if (knows_inactive) rounds = 7

  call mpi_recv_init(word(1), 1, MPI_INTEGER, left, 5, MPI_COMM_WORLD, requests(1), ierr)
  call ALLREDUCE_INIT(from, into, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(2), ierr)
  call mpi_send_init(word(2), 1, MPI_INTEGER, right, 5, MPI_COMM_WORLD, requests(3), ierr)
#ifdef ALLREDUCE_INIT_F08
  call ALLREDUCE_INIT_F08(MPI_IN_PLACE, in_place, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(4), ierr)
#else
  call ALLREDUCE_INIT(MPI_IN_PLACE, in_place, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(4), ierr)
#endif
  made = 2
  call idle

  do how = 1, rounds
    call fill(how)
    if (how == 1) then
      do k = 1, 4
        call mpi_start(requests(k), ierr)
      end do
    else
      call mpi_startall(4, requests, ierr)
    end if
    select case (merge(how, 1, knows_inactive))
    case (1)
      call mpi_waitall(4, requests, given, ierr)
      call expect(given(MPI_SOURCE, 1) == left .and. given(MPI_TAG, 1) == 5, 'waitall: status')
    case (2)
      do k = 4, 1, -1
        call mpi_wait(requests(k), one, ierr)
      end do
      call expect(one(MPI_SOURCE) == left .and. one(MPI_TAG) == 5, 'wait: status')
    case (3)
      flag = .false.
      do while (.not. flag)
        call mpi_testall(4, requests, flag, MPI_STATUSES_IGNORE, ierr)
      end do
    case (4)
      do k = 1, 4
        call mpi_waitany(4, requests, index, MPI_STATUS_IGNORE, ierr)
        call expect(index >= 1 .and. index <= 4, 'waitany: index')
      end do
      call mpi_waitany(4, requests, index, MPI_STATUS_IGNORE, ierr)
      call expect(index == MPI_UNDEFINED, 'waitany: index of nothing')
    case (5)
      all_done = 0
      do while (all_done < 4)
        call mpi_waitsome(4, requests, finished, indices, MPI_STATUSES_IGNORE, ierr)
        call expect(finished >= 1, 'waitsome: how many')
        if (finished < 1) exit
        all_done = all_done + finished
      end do
      call expect(all_done == 4, 'waitsome: how many in all')
    case (6)
      all_done = 0
      do while (all_done < 4)
        call mpi_testany(4, requests, index, flag, MPI_STATUS_IGNORE, ierr)
        if (flag) all_done = all_done + 1
        call expect(.not. flag .or. (index >= 1 .and. index <= 4), 'testany: index')
      end do
    case (7)
      all_done = 0
      do while (all_done < 4)
        call mpi_testsome(4, requests, finished, indices, given, ierr)
        call expect(finished >= 0, 'testsome: how many')
        if (finished < 0) exit
        all_done = all_done + finished
      end do
    end select
    call check(how)
    call idle
  end do

  do k = 1, 4
    call mpi_request_free(requests(k), ierr)
    call expect(requests(k) == MPI_REQUEST_NULL, 'request_free: request')
  end do
  call mpi_reduce(bad, all_bad, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a, i0)', 'made allreduce_init ', made
  call mpi_finalize(ierr)
  if (rank == 0 .and. all_bad /= 0) error stop 1

contains

  subroutine expect(ok, what)
    logical, intent(in) :: ok
    character(*), intent(in) :: what
    if (ok) return
    bad = bad + 1
    write (*, '(a, i0, a, a, a, i0)') 'rank ', rank, ': wrong: ', what, ', round ', how
  end subroutine

  integer function datum(i, r)
    integer, intent(in) :: i, r
    datum = mod(i * 31 + r * 97 + how * 1009 + mod(i, 29) * r, 401) - 200
  end function

  subroutine fill(round)
    integer, intent(in) :: round
    integer :: i
    from = [(datum(i, rank), i = 1, n)]
    in_place = from
    into = -1
    word = [-1, rank * 100 + round]
  end subroutine

  subroutine check(round)
    integer, intent(in) :: round
    integer :: i, r, want(n)
    want = 0
    do r = 0, nranks - 1
      want = want + [(datum(i, r), i = 1, n)]
    end do
    call expect(all(into == want), 'all-reduce')
    call expect(all(in_place == want), 'all-reduce in place')
    call expect(word(1) == left * 100 + round, 'message')
    call expect(all(requests /= MPI_REQUEST_NULL), 'request')
  end subroutine

  ! Inactive requests are complete, and stay.
  subroutine idle
    integer :: status(MPI_STATUS_SIZE)
    if (.not. knows_inactive) return
    call mpi_wait(requests(2), MPI_STATUS_IGNORE, ierr)
    flag = .false.
    call mpi_test(requests(4), flag, status, ierr)
    call expect(flag, 'test of an inactive request')
    call mpi_waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
    call mpi_waitsome(4, requests, finished, indices, MPI_STATUSES_IGNORE, ierr)
    call expect(finished == MPI_UNDEFINED, 'waitsome of inactive requests')
    call expect(all(requests /= MPI_REQUEST_NULL), 'inactive request')
  end subroutine
#endif
end program
