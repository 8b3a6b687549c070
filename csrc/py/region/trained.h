/* What is trained: leaves that recorded operators read with gradients lately. An optimizer that has one of them steps
 * what is accelerated, though the program gave dycl a function instead of the model.
 *
 * Leaves are known by their addresses and are not kept. One that nobody read for some steps is forgotten, as another
 * tensor may lie there by then.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_REGION_TRAINED_H
#define DYCL_PY_REGION_TRAINED_H

#include "py/torch/state.h"

void dycl_trained_note(const PyObject *leaf);
int dycl_trained_has(const PyObject *leaf);
void dycl_trained_step(void); /* an optimizer's step is over */

#endif
