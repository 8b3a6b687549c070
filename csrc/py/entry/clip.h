/* torch.nn.utils.clip_grad_norm_ and clip_grad_value_ without their Python: a walk over the parameters, and one
 * parallel loop over all gradients, where torch runs three operators for each. Most scripts clip in each step, and
 * around a step of ours (update.h) torch's clipping takes longer than the step.
 *
 * Of gradients of what was accelerated, as the optimizers that step it (optimizer.h), and only where torch would do
 * nothing else: functions that are served (served.h), the 2-norm, dense f32 gradients whose memory does not meet.
 * Everything is looked at before anything is written.
 *
 * Ownership: none is kept. Threads: GIL held; long loops run without it. */
#ifndef DYCL_PY_ENTRY_CLIP_H
#define DYCL_PY_ENTRY_CLIP_H

#include "py/cpython/compat.h"

#include <stdint.h>

/* What torch's two functions wrap; and a vector with its norm by torch, which says in how many lanes torch adds up, 8
 * or 16: not all of its kernels use the widest vectors. In neither: clipping stays torch's. 0 or -1 */
int dycl_clip_watch(PyObject *norm, PyObject *value, PyObject *sample, double of_sample);
uint64_t dycl_clip_count(void); /* calls that did without their Python */

#endif
