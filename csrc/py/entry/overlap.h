/* Whether the memory of tensors that are read and written together meets: then the order of reads and writes counts,
 * and torch has to do it.
 *
 * Ownership: a dycl_overlap keeps its arrays for the next use. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_OVERLAP_H
#define DYCL_PY_ENTRY_OVERLAP_H

#include "base/status.h"

#include <stdint.h>

typedef struct {
    uint64_t storage;
    int written;
} dycl_overlap_place;

typedef struct {
    const char *first, *last;
    int written;
} dycl_overlap_range;

typedef struct {
    dycl_overlap_range *ranges;
    dycl_overlap_place *places; /* open addressing, a power of two */
    uint32_t range_room, range_count, place_room, place_count;
    int meets; /* two tensors may have memory in common, and one of them is written */
} dycl_overlap;

void dycl_overlap_clear(dycl_overlap *o);
/* f32 elements of a tensor, one behind the other from data on. ERROR: no memory. */
dycl_status dycl_overlap_note(dycl_overlap *o, const char *impl, const void *data, int64_t count, int written);
int dycl_overlap_any(dycl_overlap *o); /* whether what is written overlaps anything else */

#endif
