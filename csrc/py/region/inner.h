/* What a tape saves and does not show the history of, lies between its sources and its results: where gradients are to
 * be differentiated themselves, that history comes from inner tapes, parts of what the tape stands for.
 *
 * Ownership: an inner tape holds its outer one. Threads: GIL held. */
#ifndef DYCL_PY_REGION_INNER_H
#define DYCL_PY_REGION_INNER_H

#include "py/region/tape.h"

/* As dycl.Tape.inner says. New reference, or NULL with an exception. */
PyObject *dycl_inner_tapes(dycl_tape *t);

#endif
