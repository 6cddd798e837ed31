/*
 * The transport whose ranks are threads of one process: EXPOSE | GET | MESSAGE. It is in no table:
 * tests name it.
 */
#ifndef TIARA_TEST_XPORT_INPROC_H
#define TIARA_TEST_XPORT_INPROC_H

#include "xport/xport.h"

extern const struct tiara_xport tiara_xport_inproc;

#endif
