/* Arrays that grow with a segment. Ownership: the caller's. Threads: GIL held. */
#ifndef DYCL_PY_REGION_GROW_H
#define DYCL_PY_REGION_GROW_H

#include "base/alloc.h"
#include "py/torch/state.h"

static inline void *dycl_grown(void *array, uint32_t *room, uint32_t wanted, size_t element) {
    if (wanted <= *room) return array;
    uint32_t next = *room ? *room : 64;
    while (next < wanted) next *= 2;
    void *block = dycl_realloc(array, next * element);
    if (!block) {
        PyErr_NoMemory();
        return NULL;
    }
    *room = next;
    return block;
}

#define DYCL_GROW(array, room, wanted)                                                                                 \
    do {                                                                                                               \
        void *block_ = dycl_grown(array, &(room), wanted, sizeof *(array));                                            \
        if (!block_) return DYCL_ERROR;                                                                                \
        (array) = block_;                                                                                              \
    } while (0)

#endif
