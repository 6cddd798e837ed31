/* A tool that takes MPI_Init, and leaves the end to others. */
#include <mpi.h>
#include <stdio.h>

int MPI_Init(int *argc, char ***argv)
{
    fputs("begin: begins\n", stderr);
    return PMPI_Init(argc, argv);
}
