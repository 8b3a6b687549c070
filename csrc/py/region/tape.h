/* What a node of torch's autograd graph (node.h) knows of the part of a recorded segment that it stands for: a tape. It
 * computes gradients with a plan, from what the node saved, or hands the recording out, to be run again in torch.
 *
 * Ownership: a tape holds the segment, and references to what fed it. Threads: GIL held; the plan runs
 * without it. */
#ifndef DYCL_PY_REGION_TAPE_H
#define DYCL_PY_REGION_TAPE_H

#include "py/region/pass.h"
#include "py/region/recording.h"
#include "py/region/region.h"

typedef struct {
    PyObject_HEAD dycl_recording *of;             /* owned */
    uint32_t *results, *sources, *saved, *hidden; /* owned, one block; hidden: positions among what is saved */
    uint32_t *seen; /* in that block, by hidden: whether a call of the program gave it, so that torch has a node */
    uint32_t result_count, source_count, saved_count, hidden_count;
    PyObject *edges; /* owned: what dycl._autograd keeps here, or NULL */
    char shown;    /* its node has what is saved with the history that it has (dycl._autograd), and no pass freed it */
    char outdated; /* its node has that still, and a pass has freed it */
    char once;     /* a second backward pass is an error */
    char frees;    /* torch's nodes of these operators save something, too: see dycl_tape_is_gone */
    int64_t *gone; /* owned: 1 + which pass freed it, then by position of what is saved which one through its inner
                      tape did; 0: none. NULL: there are no inner tapes */
    PyObject *outer; /* owned: of an inner tape, whose it is */
    uint32_t nth;    /* of an inner tape: the position */
} dycl_tape;

extern PyTypeObject dycl_tape_type;

int dycl_tape_setup(void); /* 0 or -1 */
/* A tape whose values are to be filled in. New reference, or NULL with an exception. */
dycl_tape *dycl_tape_new(dycl_recording *of, uint32_t results, uint32_t sources, uint32_t saved, uint32_t hidden);
/* Gradients of the sources, a tuple, None where there are none; None for all: torch has to compute them. What is given
 * are tuples, as many as the tape's results, sources and what it saves. New reference, or NULL with an exception. */
PyObject *dycl_tape_backward(const dycl_tape *t, PyObject *saved, PyObject *gradients, PyObject *needed);
/* One of pass.h's functions, with the tape's job. */
PyObject *dycl_tape_pass(const dycl_tape *t, PyObject *saved, PyObject *gradients, PyObject *needed, dycl_pass_fn run);
/* In eager the operators of a tape and of its inner tapes have the same nodes: whether a backward pass meets here what
 * another one freed, and to be told by one that keeps nothing. */
int dycl_tape_is_gone(const dycl_tape *t);
void dycl_tape_let_go(dycl_tape *t);
/* The source is a result of another node, and a view of this value to us. */
int dycl_tape_is_apart(const dycl_graph *graph, uint32_t source, uint32_t value);
/* Where a value is among others. `count`: it is not among them. */
static inline uint32_t dycl_tape_place(uint32_t value, const uint32_t *values, uint32_t count) {
    uint32_t i = 0;
    while (i < count && values[i] != value) i++;
    return i;
}

#endif
