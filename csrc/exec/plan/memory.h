/* The slots of a plan that is being built, and where they lie in its workspace. Private to csrc/exec.
 *
 * Ownership: the caller's. Threads: any. */
#ifndef DYCL_EXEC_PLAN_MEMORY_H
#define DYCL_EXEC_PLAN_MEMORY_H

#include "base/status.h"
#include "ir/graph.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t bytes;         /* what a step may touch */
    uint32_t first, last; /* steps; first DYCL_NONE: never touched */
    uint32_t share;       /* slot whose memory it takes over at `first`, or DYCL_NONE */
    uint32_t choice;      /* of variants, only one of which runs, or 0: slots of different variants share memory. A
                             choice's slots follow one another, variant by variant */
    uint32_t variant;
    int64_t place; /* offset in the workspace */
    uint8_t fixed; /* feed, scalar, output: not in the workspace */
    void *keep;    /* memory of the plan's arena that outlives a run, or NULL */
} dycl_slot;

/* Places every slot of the workspace, with `zone` bytes behind it that are nobody's: *out_bytes is its size. Behind
 * slots that share memory there would be no such zone: where there are zones, no variants share. */
dycl_status dycl_memory_plan(dycl_slot *slots, uint32_t count, size_t zone, size_t *out_bytes);

#endif
