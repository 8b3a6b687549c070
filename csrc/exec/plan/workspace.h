/* The memory that runs work in, shared by all plans: a plan only knows offsets, so that thousands of cached plans hold
 * none of it.
 *
 * Ownership: a block belongs to the run that took it until it gives it back; the pool keeps a few, and none that is
 * much larger than what was asked for lately. What plans ask for in their first run does not count: many have no other
 * (an optimizer's first step, which makes its state). Threads: any, without a lock. */
#ifndef DYCL_EXEC_PLAN_WORKSPACE_H
#define DYCL_EXEC_PLAN_WORKSPACE_H

#include <stddef.h>

typedef struct dycl_workspace {
    size_t bytes;
    void *data;  /* 64-byte aligned */
    size_t most; /* of it that was asked for lately */
    int uses;    /* since then */
    int first;   /* it serves a plan's first run */
} dycl_workspace;

dycl_workspace *dycl_workspace_take(size_t bytes, int first); /* NULL: out of memory */
void dycl_workspace_give(dycl_workspace *workspace);
void dycl_workspace_trim(void); /* frees what the pool keeps */

#endif
