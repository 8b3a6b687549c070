/* Gradients that are to be differentiated themselves (create_graph=True): the graph of the pass is recorded as the body
 * of a call of its own, so that they come out of one plan and have one node behind them, which goes back as any other.
 *
 * The first pass of a kind runs in torch, operator by operator (dycl/_replay.py), which says what the nodes of its
 * results are called. A kind for which an operator has no formula, or whose gradients share memory, stays there.
 *
 * Ownership: what is known of a kind belongs to its graph (exec/cache/backwards.h). Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_SECOND_H
#define DYCL_PY_ENTRY_SECOND_H

#include "py/torch/state.h"

/* record_gradients(tape, saved, gradients, needed): those of the sources, a tuple as the tape's backward answers it,
 * with their histories; None: torch has to compute them. New reference, or NULL with an exception. */
PyObject *dycl_second_record(PyObject *self, PyObject *args);
/* learn_gradients(tape, saved, gradients, needed, found): what torch found. */
PyObject *dycl_second_learn(PyObject *self, PyObject *args);

#endif
