/* What is trained: parameters that recorded operators read with gradients. An optimizer that has one of them steps what
 * is accelerated, though the program gave dycl a function instead of the model.
 *
 * Ownership: weak references; of two that have one place the older one is forgotten. Threads: GIL held. */
#ifndef DYCL_PY_REGION_TRAINED_H
#define DYCL_PY_REGION_TRAINED_H

#include "py/torch/state.h"

void dycl_trained_note(PyObject *leaf); /* only parameters are noted */
int dycl_trained_has(PyObject *leaf);

#endif
