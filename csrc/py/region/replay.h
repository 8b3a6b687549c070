/* Replay: the recorded segment of a region run node by node in torch (dycl/_replay.py), for what no plan can run. The
 * results are torch's, and so are the errors.
 *
 * Ownership: the handles are the caller's. Threads: GIL held. */
#ifndef DYCL_PY_REGION_REPLAY_H
#define DYCL_PY_REGION_REPLAY_H

#include "py/region/region.h"

extern int dycl_replay_always; /* every segment, without looking for a plan: for tests, and to tell a wrong plan from a
                                  wrong recording */

/* Computes the `count` values that region->outputs names into region->handles; the first `shown` of them are tensors of
 * the program, whose nodes have names. 0, or -1 with an exception.
 * Where an operator raises, its exception becomes region->failure; what does not depend on it is computed, and all else
 * is no output any more (count and shown), no replaced tensor's value, and lost to its lazy tensors.
 * counts: what they show as their versions is what operators in place made of them. */
int dycl_replay_run(dycl_region *region, uint32_t *count, uint32_t *shown, int counts);
/* (type, arguments) of an exception: it can be raised again, and keeps no frames. NULL with an exception. */
PyObject *dycl_replay_error(PyObject *exception);
/* The nodes that lead to the outputs, and what is there before the first of them, for dycl._replay.run. 0 or -1. */
int dycl_replay_describe(const dycl_graph *graph, const dycl_scalar *scalars, const dycl_handle *feeds,
                         const uint32_t *outputs, uint32_t count, PyObject **out_nodes, PyObject **out_values);
PyObject *dycl_replay_words(int count, const uint32_t *values); /* a tuple of ints, None for DYCL_NONE */
int dycl_replay_set(PyObject *function);                        /* dycl._replay.run */

#endif
