#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static void *default_resize(void *context, void *block, size_t size) {
    (void)context;
    if (size == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, size);
}

static void *default_aligned(void *context, size_t size) {
    (void)context;
    return aligned_alloc(64, (size + 63) & ~(size_t)63);
}

static void default_aligned_free(void *context, void *block) {
    (void)context;
    free(block);
}

static const dycl_allocator default_allocator = {default_resize, default_aligned, default_aligned_free, NULL};
static dycl_allocator current = {default_resize, default_aligned, default_aligned_free, NULL};

void dycl_allocator_set(const dycl_allocator *allocator) { current = allocator ? *allocator : default_allocator; }

dycl_allocator dycl_allocator_get(void) { return current; }

void *dycl_alloc(size_t size) { return current.resize(current.context, NULL, size ? size : 1); }

void *dycl_alloc_zero(size_t size) {
    void *block = dycl_alloc(size);
    if (block) memset(block, 0, size);
    return block;
}

void *dycl_realloc(void *block, size_t size) { return current.resize(current.context, block, size ? size : 1); }

void dycl_free(void *block) {
    if (block) current.resize(current.context, block, 0);
}

void *dycl_aligned_alloc(size_t size) { return current.aligned(current.context, size ? size : 64); }

void dycl_aligned_free(void *block) {
    if (block) current.aligned_free(current.context, block);
}

int dycl_make_room(void **array, uint32_t *room, uint32_t wanted, size_t element) {
    if (wanted <= *room) return 1;
    uint32_t next = *room ? *room : 16;
    while (next < wanted) next = next > UINT32_MAX / 2 ? UINT32_MAX : 2 * next;
    void *bigger = dycl_realloc(*array, next * element);
    if (!bigger) return 0;
    *array = bigger;
    *room = next;
    return 1;
}
