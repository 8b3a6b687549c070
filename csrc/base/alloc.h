/* All memory of the core comes through one table, so that a test can fail the nth allocation.
 *
 * Ownership: what these return is the caller's. Threads: every function may be called from any thread. */
#ifndef DYCL_BASE_ALLOC_H
#define DYCL_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    void *(*resize)(void *context, void *block, size_t size); /* realloc; size 0 frees */
    void *(*aligned)(void *context, size_t size);             /* 64-byte aligned; freed by aligned_free */
    void (*aligned_free)(void *context, void *block);
    void *context;
} dycl_allocator;

void dycl_allocator_set(const dycl_allocator *allocator); /* NULL restores the default; for tests */
dycl_allocator dycl_allocator_get(void);                  /* the one in force */
void *dycl_alloc(size_t size);                            /* NULL when out of memory */
void *dycl_alloc_zero(size_t size);
void *dycl_realloc(void *block, size_t size);
void dycl_free(void *block);
void *dycl_aligned_alloc(size_t size);
void dycl_aligned_free(void *block);

/* Room for `wanted` elements in an array of `room` elements, which doubles. 0 when out of memory: the array stays. */
int dycl_make_room(void **array, uint32_t *room, uint32_t wanted, size_t element);

#define DYCL_MAKE_ROOM(array, room, wanted) dycl_make_room((void **)&(array), &(room), wanted, sizeof *(array))

#endif
