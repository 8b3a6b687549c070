/* A step of torch.optim's optimizers without its Python: what the step functions would find (gradients, state, numbers)
 * is collected by one walk over the groups, and all parameters are updated in one parallel loop (kern/update.h).
 *
 * Only where a step does nothing else: an optimizer of just that class of torch.optim that is served (served.h), with
 * dense f32 tensors, numbers for hyperparameters, and state that is there already. Everything is looked at before
 * anything is written; what is not served is left to the step function as a whole.
 *
 * Ownership: none is kept. Threads: GIL held; long updates run without it. */
#ifndef DYCL_PY_ENTRY_UPDATE_H
#define DYCL_PY_ENTRY_UPDATE_H

#include "py/torch/state.h"

typedef enum {
    DYCL_UPDATE_FAILED = -1, /* with an exception */
    DYCL_UPDATE_OTHER,       /* the step function has to run, which may be recorded */
    DYCL_UPDATE_DONE,
    DYCL_UPDATE_TORCH /* the step function has to run, and gains nothing when it is recorded: fused=True */
} dycl_update_result;

/* *out_count: parameters that were updated. */
dycl_update_result dycl_update_step(PyObject *optimizer, uint64_t *out_count);

#endif
