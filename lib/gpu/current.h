/*
 * Private to lib/gpu: work on a device that need not be the program's current one, which is left as
 * it was.
 */
#ifndef TIARA_GPU_CURRENT_H
#define TIARA_GPU_CURRENT_H

/* Makes @ordinal current, with a context; returns the device that was, for leave. May be nested. */
int tiara_gpu_enter(int ordinal);
void tiara_gpu_leave(int previous);

#endif
