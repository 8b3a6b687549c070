#include "py/entry/overlap.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "py/region/grow.h"
#include "py/torch/abi.h"

void dycl_overlap_clear(dycl_overlap *o) {
    if (o->places) memset(o->places, 0, o->place_room * sizeof *o->places);
    o->range_count = o->place_count = 0;
    o->meets = 0;
}

static dycl_overlap_place *find_place(const dycl_overlap *o, uint64_t storage) {
    uint32_t mask = o->place_room - 1, at = (uint32_t)((storage * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & mask;
    while (o->places[at].storage && o->places[at].storage != storage) at = (at + 1) & mask;
    return &o->places[at];
}

static dycl_status grow_places(dycl_overlap *o) {
    dycl_overlap_place *old = o->places;
    uint32_t old_room = o->place_room, room = old_room ? 2 * old_room : 256;
    dycl_overlap_place *next = dycl_alloc_zero(room * sizeof *next);
    if (!next) {
        PyErr_NoMemory();
        return DYCL_ERROR;
    }
    o->places = next;
    o->place_room = room;
    for (uint32_t i = 0; i < old_room; i++)
        if (old[i].storage) *find_place(o, old[i].storage) = old[i];
    dycl_free(old);
    return DYCL_OK;
}

dycl_status dycl_overlap_note(dycl_overlap *o, const char *impl, const void *data, int64_t count, int written) {
    if (2 * (o->place_count + 1) > o->place_room && grow_places(o) != DYCL_OK) return DYCL_ERROR;
    DYCL_GROW(o->ranges, o->range_room, o->range_count + 1);
    o->ranges[o->range_count++] =
        (dycl_overlap_range){data, (const char *)data + count * (int64_t)sizeof(float), written};
    uint64_t storage = dycl_abi_storage(impl);
    dycl_overlap_place *p = find_place(o, storage);
    if (!p->storage) o->place_count++;
    o->meets |= (p->storage && (p->written || written)) || dycl_abi_storage_foreign(impl);
    *p = (dycl_overlap_place){storage, p->written | written};
    return DYCL_OK;
}

static int by_address(const void *a, const void *b) {
    const dycl_overlap_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

int dycl_overlap_any(dycl_overlap *o) {
    const char *read_to = NULL, *written_to = NULL; /* as far as what began before reaches */
    if (!o->meets) return 0;
    qsort(o->ranges, o->range_count, sizeof *o->ranges, by_address);
    for (uint32_t i = 0; i < o->range_count; i++) {
        const dycl_overlap_range *r = &o->ranges[i];
        if (r->first == r->last) continue;
        if (r->first < written_to || (r->written && r->first < read_to)) return 1;
        if (r->written && r->last > written_to) written_to = r->last;
        if (r->last > read_to) read_to = r->last;
    }
    return 0;
}
