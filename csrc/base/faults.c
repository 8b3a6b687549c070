#include "base/faults.h"

#include <stdatomic.h>

#include "base/alloc.h"

static dycl_allocator behind; /* what really allocates */
static atomic_long asked, first, last;

static int fails(void) {
    long n = atomic_fetch_add(&asked, 1);
    return n >= atomic_load(&first) && n < atomic_load(&last);
}

static void *resize(void *context, void *block, size_t size) {
    (void)context;
    return size && fails() ? NULL : behind.resize(behind.context, block, size);
}

static void *aligned(void *context, size_t size) {
    (void)context;
    return fails() ? NULL : behind.aligned(behind.context, size);
}

static void aligned_free(void *context, void *block) {
    (void)context;
    behind.aligned_free(behind.context, block);
}

void dycl_faults_begin(long nth, long how_many) {
    if (!behind.resize) behind = dycl_allocator_get(); /* it stays in between from now on */
    atomic_store(&first, nth);
    atomic_store(&last, nth + how_many);
    atomic_store(&asked, 0);
    dycl_allocator_set(&(dycl_allocator){resize, aligned, aligned_free, NULL});
}

long dycl_faults_end(void) {
    long count = atomic_load(&asked);
    atomic_store(&last, 0);
    if (behind.resize) dycl_allocator_set(&behind);
    return count;
}
