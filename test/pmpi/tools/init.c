/* A tool that does only what many do: it begins in MPI_Init and ends in MPI_Finalize, by the PMPI_
 * names. */
#include <mpi.h>
#include <stdio.h>

int MPI_Init(int *argc, char ***argv)
{
    fputs("init: begins\n", stderr);
    return PMPI_Init(argc, argv);
}

int MPI_Finalize(void)
{
    fputs("init: ends\n", stderr);
    return PMPI_Finalize();
}
