/* A node of torch's autograd graph that stands for a part of a recorded segment. torch knows it as an
 * autograd.Function (dycl/_autograd.py) whose functions are these: a node is made, and gone back through, without a
 * line of Python, which took longer than a small segment runs. What happens rarely stays there: a graph of the
 * gradients is asked for, no plan can compute them, results of several calls share a node.
 *
 * Threads: GIL held; a plan runs without it. */
#ifndef DYCL_PY_REGION_NODE_H
#define DYCL_PY_REGION_NODE_H

#include "py/region/own_results.h"
#include "py/region/tape.h"

typedef struct {
    const uint32_t *results, *sources, *saved; /* values of the segment */
    const uint8_t *bare;   /* by what is saved: who differentiates the gradients needs no history of it */
    const uint8_t *copied; /* by what is saved: torch saves copies of it only: it may be written to */
    uint32_t result_count, source_count, saved_count;
    const dycl_own_results *own;
    const dycl_handle *source_handles; /* by source: its tensor, where it is a view that the program holds; else NULL */
    int once; /* torch's graph saves something: a second backward pass is an error, unless it is retained */
} dycl_node_plan;

int dycl_node_is(PyObject *node);    /* whether a node of torch's graph (grad_fn) is one of these */
int dycl_node_add(PyObject *module); /* what dycl._autograd makes its node of. 0, or -1 with an exception */
/* dycl._autograd.attach, or None. Gives the one before: new reference. */
PyObject *dycl_node_set_attach(PyObject *attach);
/* Gives computed results (region->handles) a node; what was recorded: recording.h. 0, or -1 with an exception. */
int dycl_node_attach(dycl_region *region, PyObject *recording, const dycl_node_plan *plan);

#endif
