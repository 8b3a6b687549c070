/* How a step finds the packed form of a constant. Private to csrc/exec.
 *
 * Ownership: the plan's arena; a binding holds references to packed forms. Threads: as runs of the plan. */
#ifndef DYCL_EXEC_PLAN_BINDING_H
#define DYCL_EXEC_PLAN_BINDING_H

#include "exec/pack/pack.h"
#include "exec/plan/plan.h"

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

/* The packed constant of this run, or NULL: not constant, or not yet worth packing. scale: `channels` factors, or
 * NULL. */
void dycl_binding_forget(dycl_binding *binding); /* gives back what it holds */
dycl_status dycl_binding_get(const dycl_plan *plan, dycl_binding *binding, const float *scale, const void **out);

#endif
