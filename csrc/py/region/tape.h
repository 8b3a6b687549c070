/* A node of torch's autograd graph that stands for a part of a recorded segment (dycl/_autograd.py makes it of a tape).
 * A tape knows what was recorded; it computes gradients with a plan, from what the node saved, or hands the recording
 * out, to be run again in torch.
 *
 * Ownership: a tape holds the segment, and references to what fed it. Threads: GIL held; the plan runs
 * without it. */
#ifndef DYCL_PY_REGION_TAPE_H
#define DYCL_PY_REGION_TAPE_H

#include "py/region/region.h"

typedef struct {
    const uint32_t *results, *sources, *saved; /* values of the segment */
    uint32_t result_count, source_count, saved_count;
    const uint32_t *apart; /* results that are views here and none to torch, and their tensors */
    const dycl_handle *apart_handles;
    const dycl_handle *source_handles; /* by source: its tensor, where it is a view that the program holds; else NULL */
    uint32_t apart_count;
    int once; /* torch's graph saves something: a second backward pass is an error, unless it is retained */
} dycl_tape_plan;

int dycl_tape_setup(void); /* 0 or -1 */
/* dycl._autograd.attach, or None. Gives the one before: new reference. */
PyObject *dycl_tape_set_attach(PyObject *attach);
/* Gives computed results (region->handles) a node; what was recorded: recording.h. 0, or -1 with an exception. */
int dycl_tape_attach(dycl_region *region, PyObject *recording, const dycl_tape_plan *plan);

#endif
