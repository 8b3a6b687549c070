/* What the tapes of one segment share (tape.h): the segment that was recorded, its numbers, and which of its values
 * have a history.
 *
 * Ownership: a Python object that owns all of it. Threads: GIL held. */
#ifndef DYCL_PY_REGION_RECORDING_H
#define DYCL_PY_REGION_RECORDING_H

#include "py/region/region.h"
#include "py/site/passes.h"

typedef struct {
    PyObject_HEAD dycl_segment *segment; /* retained */
    dycl_passes *passes;                 /* retained: who counts backward passes through it; NULL: nobody */
    dycl_scalar *scalars;                /* owned */
    uint8_t *tracked;                    /* owned */
} dycl_recording;

int dycl_recording_setup(void); /* 0 or -1 */
/* `segment` is the one that the region's graph is. New reference, or NULL with an exception. */
PyObject *dycl_recording_new(const dycl_region *region, dycl_segment *segment);

#endif
