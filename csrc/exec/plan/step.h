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
#include "exec/tune/measure.h"
#include "exec/pack/pack.h"
#include "exec/plan/plan.h"
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
    const dycl_measure *measure;      /* it has several ways; or NULL */
    double cost;                      /* estimated nanoseconds */
    int serial;                       /* runs on one thread, and may run inside a parallel region */
    struct dycl_group *group;         /* the steps that this one runs side by side, or NULL */
    atomic_ullong nanoseconds, count; /* while timing is on; explain may look meanwhile */
} dycl_step_info;

#define DYCL_BINDING_KEPT 16

/* How a step finds the packed form of a constant. `patient`: packing waits for the second run with the same contents,
 * because the step has another way and weights in training change at every step. */
typedef struct {
    uint32_t feed;
    int64_t offset;        /* bytes from the feed's first element */
    int64_t words;         /* of 4 bytes, that the feed has; 0: unknown */
    dycl_prim *prim;       /* or */
    dycl_small_form small; /* whose form it is, or */
    dycl_gemm_form gemm;
    int winograd;
    dycl_bf16_form bf16;
    dycl_narrow_form narrow;
    dycl_screen_form screen;
    dycl_pack *pack;
    uint64_t salt;
    struct {
        const void *source;
        uint64_t token, version;
    } seen[DYCL_BINDING_KEPT];          /* contents that came lately, the oldest is replaced */
    dycl_pack *kept[DYCL_BINDING_KEPT]; /* packed forms used before `pack`: equal layers share a plan, and each has its
                                           own weights */
    uint32_t next_seen, next_kept;
    int fresh;                     /* the last search made a packed form; who wants to know sets it to 0 before */
    int64_t channels, per_channel; /* of weights that a scale is multiplied into; channels 0: none */
    float *scale;                  /* the factors that `pack` holds */
    int patient, at_once;          /* at_once: not so at its first run */
    atomic_size_t packed;          /* bytes of `pack`, for who may not look into it */
} dycl_binding;

struct dycl_plan {
    atomic_int references;
    dycl_claim busy;
    dycl_plan_mode mode;
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
    dycl_binding **bindings;
    uint32_t binding_count, binding_room;
    dycl_prim **prims;
    uint32_t prim_count, prim_room;
    dycl_measure **measures;
    uint32_t measure_count, measure_room;
    void *arena;                       /* newest chunk */
    int threads;                       /* that per-thread scratch is made for */
    int guarded;                       /* some step looks at what a primitive is not made for, see guard.h */
    int suspect;                       /* and found it: the run's result does not count */
    _Atomic(struct dycl_plan *) exact; /* made when first needed */
    struct dycl_check *check;          /* owned: checks beside every run (check.h), or NULL */
    dycl_graph original;               /* as it was recorded, where an EXACT plan may be made of it; else empty */
    double estimate;
    /* written by the run under way; threads that do not run the plan may read them (its cost, explain) */
    atomic_ullong runs, nanoseconds;
    _Atomic float samples[8]; /* last run times, for the median */
};

static inline void *dycl_at(const dycl_plan *plan, dycl_ref ref) { return (char *)plan->slots[ref.slot] + ref.offset; }

/* A run begins and ends: with the plan's busy flag taken by the caller; close gives it back, and so does open when it
 * fails. The slots of the feeds are the caller's to set. */
struct dycl_workspace;
dycl_status dycl_plan_open(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs,
                           struct dycl_workspace **out_workspace);
void dycl_plan_close(dycl_plan *plan, struct dycl_workspace *workspace);

/* The packed constant of this run, or NULL: not constant, or not yet worth packing. scale: `channels` factors, or
 * NULL. */
void dycl_binding_forget(dycl_binding *binding); /* gives back what it holds */
dycl_status dycl_binding_get(const dycl_plan *plan, dycl_binding *binding, const float *scale, const void **out);

#endif
