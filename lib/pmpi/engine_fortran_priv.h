/*
 * What the Fortran files of the engine share: the calls with requests, of
 * engine_fortran_requests.c.
 */
#ifndef TIARA_PMPI_ENGINE_FORTRAN_PRIV_H
#define TIARA_PMPI_ENGINE_FORTRAN_PRIV_H

#include "pmpi/engine_fortran.h"

#define X(name, NAME, parameters, arguments) bool tiara_engine_fortran_##name parameters;
TIARA_FORTRAN_REQUEST_CALLS(X)
#undef X

#endif
