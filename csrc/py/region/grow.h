/* Arrays that grow with a segment. Ownership: the caller's. Threads: GIL held. */
#ifndef DYCL_PY_REGION_GROW_H
#define DYCL_PY_REGION_GROW_H

#include "base/alloc.h"
#include "py/torch/state.h"

static inline void *dycl_grown(void *array, uint32_t *room, uint32_t wanted, size_t element) {
    if (dycl_make_room(&array, room, wanted, element)) return array;
    PyErr_NoMemory();
    return NULL;
}

#define DYCL_GROW(array, room, wanted)                                                                                 \
    do {                                                                                                               \
        void *block_ = dycl_grown(array, &(room), wanted, sizeof *(array));                                            \
        if (!block_) return DYCL_ERROR;                                                                                \
        (array) = block_;                                                                                              \
    } while (0)

#endif
