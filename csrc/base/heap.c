#define _GNU_SOURCE
#include "base/heap.h"

#include "base/lock.h"
#include "base/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK ((size_t)1 << 20)
enum {
    SMALLEST = 6,                           /* log2 of the smallest block */
    LARGEST = 17,                           /* blocks of 2^LARGEST bytes and more are malloc's */
    CLASSES = 4 * (LARGEST - SMALLEST) + 1, /* four sizes for each doubling */
    MALLOCED = CLASSES
};

typedef union block {
    struct {
        size_t size; /* of the whole block */
        uint32_t class;
    } in_use;
    union block *next; /* while free */
    char alignment[16];
} block;

static block *free_blocks[CLASSES];
static char *rest, *rest_end; /* of the newest chunk */
static size_t in_use;

static size_t size_of(int class) { return (size_t)(4 + class % 4) << (SMALLEST - 2 + class / 4); }

static int class_for(size_t size) { /* the smallest that has room */
    if (size <= (size_t)1 << SMALLEST) return 0;
    int log = 63 - __builtin_clzll((unsigned long long)size - 1); /* 2^log <= size - 1 < 2^(log + 1) */
    return 4 * (log - SMALLEST) + (int)((size - 1) >> (log - 2)) - 4 + 1;
}

static void put_rest_away(void) {
    for (int class = CLASSES - 1; class >= 0; class --) {
        while ((size_t)(rest_end - rest) >= size_of(class)) {
            block *b = (block *)rest;
            b->next = free_blocks[class];
            free_blocks[class] = b;
            rest += size_of(class);
        }
    }
}

static block *take(int class) {
    size_t size = size_of(class);
    dycl_lock(DYCL_LOCK_HEAP);
    block *b = free_blocks[class];
    if (b) {
        free_blocks[class] = b->next;
    } else {
        if ((size_t)(rest_end - rest) < size) {
            char *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (chunk == MAP_FAILED) {
                dycl_unlock(DYCL_LOCK_HEAP);
                return NULL;
            }
            put_rest_away();
            rest = chunk;
            rest_end = chunk + CHUNK;
        }
        b = (block *)rest;
        rest += size;
    }
    in_use += size;
    dycl_unlock(DYCL_LOCK_HEAP);
    b->in_use.size = size;
    b->in_use.class = (uint32_t) class;
    return b;
}

static void count(size_t more, size_t less) { /* malloc's */
    dycl_lock(DYCL_LOCK_HEAP);
    in_use += more - less;
    dycl_unlock(DYCL_LOCK_HEAP);
}

static void give(block *b) {
    int class = (int)b->in_use.class;
    if (class == MALLOCED) {
        count(0, b->in_use.size);
        free(b);
        return;
    }
    dycl_lock(DYCL_LOCK_HEAP);
    in_use -= size_of(class);
    b->next = free_blocks[class];
    free_blocks[class] = b;
    dycl_unlock(DYCL_LOCK_HEAP);
}

static block *get(size_t size) {
    if (size <= size_of(CLASSES - 1)) return take(class_for(size));
    block *b = malloc(size);
    if (b) {
        b->in_use.size = size;
        b->in_use.class = MALLOCED;
        count(size, 0);
    }
    return b;
}

static void *resize(void *context, void *memory, size_t size) {
    block *b = memory ? (block *)memory - 1 : NULL;
    (void)context;
    if (size == 0) {
        if (b) give(b);
        return NULL;
    }
    if (size > SIZE_MAX - sizeof(block)) return NULL;
    size += sizeof(block);
    if (b && size <= b->in_use.size &&
        (b->in_use.class == MALLOCED ? size > b->in_use.size / 2 : (int)b->in_use.class == class_for(size)))
        return memory;
    if (b && b->in_use.class == MALLOCED && size > size_of(CLASSES - 1)) {
        size_t old = b->in_use.size;
        b = realloc(b, size);
        if (!b) return NULL;
        count(size, old);
        b->in_use.size = size;
        return b + 1;
    }
    block *next = get(size);
    if (!next) return NULL;
    if (b) {
        memcpy(next + 1, memory, (b->in_use.size < size ? b->in_use.size : size) - sizeof(block));
        give(b);
    }
    return next + 1;
}

static void *aligned(void *context, size_t size) {
    (void)context;
    return dycl_pages_get(size);
}

static void aligned_free(void *context, void *memory) {
    (void)context;
    dycl_pages_free(memory);
}

const dycl_allocator dycl_heap = {resize, aligned, aligned_free, NULL};

size_t dycl_heap_bytes(void) {
    dycl_lock(DYCL_LOCK_HEAP);
    size_t bytes = in_use;
    dycl_unlock(DYCL_LOCK_HEAP);
    return bytes;
}
