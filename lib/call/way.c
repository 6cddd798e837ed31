/*
 * The table of ways that are driven by polling. Calls on GPUs are launched (on_device.h), and what
 * has no way goes to the MPI below.
 */
#include "call/way.h"

const struct tiara_way *tiara_way_of(const struct tiara_tune_choice *choice)
{
    static const struct tiara_way *const ways[] = {
        [TIARA_PATH_MPI] = NULL,
        [TIARA_PATH_SMALL] = &tiara_way_oneshot,
        [TIARA_PATH_PLAN] = &tiara_way_plan,
    };

    return ways[choice->path];
}
