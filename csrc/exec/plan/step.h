/* What a plan is made of inside: slots, steps, lifetimes. Private to csrc/exec.
 *
 * A slot is a place in memory known at run time by one pointer: slot v < value_count is the storage of root value v (a
 * feed, a scalar, an output or a piece of the workspace), further slots are temporaries and packed weights. A step is
 * a function and its arguments, which live in the plan's arena. Ownership: the plan owns all of it. Threads: one run
 * at a time. */
#ifndef DYCL_EXEC_PLAN_STEP_H
#define DYCL_EXEC_PLAN_STEP_H

#include "base/lock.h"
#include "dnnl/dnnl.h"
#include "exec/plan/packing.h"
#include "exec/tune/autotune.h"
#include "opt/program.h"

#include <stdatomic.h>

typedef struct {
    uint32_t slot, unused;
    int64_t offset; /* bytes */
} dycl_ref;

typedef struct dycl_step dycl_step;
typedef dycl_status (*dycl_step_fn)(const dycl_step *step, dycl_plan *plan);
struct dycl_step {
    dycl_step_fn run;
    void *args;
};

typedef struct {
    uint32_t block;     /* of the program, or DYCL_NONE */
    const char *kernel; /* static text */
    const dycl_prim *prim;
    const dycl_autotune *autotune;    /* it has several variants; or NULL */
    double cost;                      /* estimated nanoseconds */
    int serial;                       /* runs on one thread, and may run inside a parallel region */
    struct dycl_group *group;         /* the steps that this one runs side by side, or NULL */
    atomic_ullong nanoseconds, count; /* while timing is on; explain may look meanwhile */
} dycl_step_info;

/* Steps that run side by side. */
#define DYCL_GROUP_STEPS 8

typedef struct dycl_group {
    uint32_t count;
    dycl_step steps[DYCL_GROUP_STEPS];
    dycl_step_info infos[DYCL_GROUP_STEPS];
} dycl_group;

struct dycl_plan {
    atomic_int references;
    dycl_claim busy;
    dycl_plan_mode mode;
    int epilogues; /* it was made with them; an odd convolution may exist only without */
    dycl_program program;
    dycl_step *steps;
    dycl_step_info *infos;
    uint32_t step_count, step_room;
    void **slots;
    uint32_t slot_count;
    char *workspace; /* where `slots` point now: the block of the last run */
    uint32_t *needs; /* step -> nodes of the trace that must be there before it (ahead.h); NULL until asked for */
    int64_t *places; /* slot -> offset in the workspace, -1: elsewhere */
    const dycl_feed *feeds; /* of the run under way */
    size_t workspace_bytes;
    dycl_packing **packings;
    uint32_t packing_count, packing_room;
    dycl_prim **prims;
    uint32_t prim_count, prim_room;
    dycl_autotune **autotunes;
    uint32_t autotune_count, autotune_room;
    void *arena;                        /* newest chunk */
    size_t arena_bytes;                 /* of all chunks */
    int threads;                        /* that per-thread scratch is made for */
    int guarded;                        /* some step looks at what a primitive is not made for, see builder/guard.h */
    int suspect;                        /* and found it: the run's result does not count */
    _Atomic(struct dycl_plan *) exact;  /* made when first needed */
    struct dycl_check *check;           /* owned: checks beside every run (check.h), or NULL */
    const struct dycl_backend *backend; /* whose plan it is; NULL: ours */
    void *compiled;                     /* owned: what the backend made of it */
    dycl_graph original;                /* as it was recorded, where an EXACT plan may be made of it; else empty */
    uint32_t *replaced; /* owned: the feeds that outputs would replace, and whether they may (tile/in_place.h) */
    uint32_t replaced_count;
    int in_place;
    double estimate;
    /* written by the run under way; threads that do not run the plan may read them (its cost, explain) */
    atomic_ullong runs, nanoseconds;
    _Atomic float samples[8]; /* last run times, for the median */
};

static inline void *dycl_at(const dycl_plan *plan, dycl_ref ref) { return (char *)plan->slots[ref.slot] + ref.offset; }

dycl_plan *dycl_plan_new(dycl_plan_mode mode); /* without steps; NULL, and the message is set: no memory */

/* A run begins and ends: with the plan's busy flag taken by the caller; close gives it back, and so does open when it
 * fails. The slots of the feeds are the caller's to set. */
struct dycl_workspace;
dycl_status dycl_plan_open(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs,
                           struct dycl_workspace **out_workspace);
void dycl_plan_close(dycl_plan *plan, struct dycl_workspace *workspace);
void dycl_plan_step_took(dycl_plan *plan, uint32_t step, uint64_t nanoseconds); /* while timing is on */

#endif
