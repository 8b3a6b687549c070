/* How a step finds the packed form of a constant. Private to csrc/exec.
 *
 * Ownership: the plan's arena; a packing holds references to packed forms. Threads: as runs of the plan. */
#ifndef DYCL_EXEC_PLAN_PACKING_H
#define DYCL_EXEC_PLAN_PACKING_H

#include "exec/pack/pack.h"
#include "exec/plan/plan.h"

#define DYCL_PACKING_KEPT 16

/* How a step finds the packed form of a constant. `patient`: packing waits for the second run with the same contents,
 * because the step has another variant and weights in training change at every step. */
typedef struct {
    uint32_t feed;
    int64_t offset; /* bytes from the feed's first element */
    int64_t words;  /* of 4 bytes, that the feed has; 0: unknown */
    dycl_weights as;
    dycl_pack *pack;
    struct {
        const void *source;
        uint64_t token, version;
    } seen[DYCL_PACKING_KEPT];          /* contents that came lately, the oldest is replaced */
    dycl_pack *kept[DYCL_PACKING_KEPT]; /* packed forms used before `pack`: equal layers share a plan, and each has its
                                           own weights */
    uint32_t next_seen, next_kept;
    int fresh;            /* the last search made a packed form; who wants to know sets it to 0 before */
    float *scale;         /* the factors that `pack` holds; NULL: there never are any */
    int patient, at_once; /* at_once: not so at its first run */
    atomic_size_t packed; /* bytes of `pack`, for who may not look into it */
} dycl_packing;

void dycl_packing_forget(dycl_packing *packing); /* gives back what it holds */
/* Whether this run's contents are constant and came before, lately, or are to be packed at once; they have come now. */
int dycl_packing_came_before(const dycl_plan *plan, dycl_packing *packing);
/* The packed constant of this run, or NULL: not constant, or not yet worth packing. scale: as.channels factors, or
 * NULL. */
dycl_status dycl_packing_get(const dycl_plan *plan, dycl_packing *packing, const float *scale, const void **out);

#endif
