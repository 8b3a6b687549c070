/* One backward pass through a part of a recorded segment: the graph of the gradients that are wanted, its plan, and
 * their tensors.
 *
 * Ownership: everything in a job is borrowed. Threads: GIL held; the plan runs without it. */
#ifndef DYCL_PY_REGION_PASS_H
#define DYCL_PY_REGION_PASS_H

#include "exec/cache/backwards.h"
#include "py/region/region.h"
#include "py/site/passes.h"

typedef struct {
    dycl_segment *segment; /* what was recorded, its numbers, and which of its values have a history */
    dycl_passes *passes;   /* who counts; NULL: nobody */
    const dycl_scalar *scalars;
    const uint8_t *tracked;
    const uint32_t *results, *sources, *saved; /* values of the segment */
    uint32_t result_count, source_count, saved_count;
} dycl_pass_job;

/* Gradients of the sources, a tuple: None where there is none. saved, gradients (or None) and needed are tuples as the
 * job's arrays. Py_None for all: no plan can compute them. New reference, or NULL with an exception. */
typedef PyObject *(*dycl_pass_fn)(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed);
PyObject *dycl_pass_run(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed);
/* What a pass computes, for who computes it otherwise. */
typedef struct {
    dycl_gradients *of;      /* owned */
    const dycl_graph *graph; /* of `of` */
    PyObject **feeds;        /* borrowed tensors, by feed */
    dycl_scalar *numbers;    /* by scalar */
    dycl_status status;      /* OK; BAIL: there is no graph, and nothing else here; ERROR: with an exception */
} dycl_opened_pass;
dycl_opened_pass dycl_pass_open(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed);
void dycl_pass_close(dycl_opened_pass *opened);
/* The same as a graph that torch can run, differentiating it: (nodes, values, outputs, strides), see tape.c. */
PyObject *dycl_pass_describe(const dycl_pass_job *job, PyObject *saved, PyObject *gradients, PyObject *needed);
int dycl_pass_take_made(void); /* plans made since the last question: DYCL_MADE_ bits */

#endif
