/*
 * The table of ways that are driven by polling. Calls on GPUs are launched (on_device.h), and what
 * has no way goes to the MPI below.
 */
#include "call/way.h"

const struct tiara_way *tiara_way_of(const struct tiara_tune_choice *choice, bool posted)
{
    static const struct tiara_way *const ways[][2] = {
        [TIARA_PATH_MPI] = {NULL, NULL},
        [TIARA_PATH_ONESHOT] = {&tiara_way_oneshot, &tiara_way_posted},
        [TIARA_PATH_PLAN] = {&tiara_way_plan, &tiara_way_plan},
    };

    return ways[choice->path][posted];
}
