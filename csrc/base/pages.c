#define _GNU_SOURCE
#include "base/pages.h"

#include "base/lock.h"
#include "base/sanitize.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define CHUNK     ((size_t)32 << 20) /* at least; only what is touched takes memory */
#define LEAST     ((size_t)64 << 10) /* smaller blocks are malloc's: they have few pages */
#define FEW       ((size_t)4 << 20)  /* as much in ordinary pages has its place in every TLB of a server's */
#define ALIGNMENT 64

/* Stands before each block, and at the begin of free memory. The spans of a chunk follow one another. */
typedef struct span {
    struct span *before, *after;        /* neighbours in the chunk, or NULL */
    struct span *next_free, *last_free; /* while free */
    size_t size;                        /* this header included */
    enum { FREE, USED, MALLOCED } state;
} span;

_Static_assert(sizeof(span) <= ALIGNMENT, "a header keeps the alignment");

static span *free_spans;
static size_t in_use;
static int huge; /* more than FEW was in use. Until then a small model would pay for pages of which it has a part */

static void link_free(span *s) {
    s->state = FREE;
    s->last_free = NULL;
    s->next_free = free_spans;
    if (free_spans) free_spans->last_free = s;
    free_spans = s;
}

static void unlink_free(span *s) {
    if (s->last_free)
        s->last_free->next_free = s->next_free;
    else
        free_spans = s->next_free;
    if (s->next_free) s->next_free->last_free = s->last_free;
}

/* A free span of `bytes` or a little more, which begins with a huge page. */
static span *map_chunk(size_t bytes) {
    bytes = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    char *from = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED) return NULL;
    char *to = (char *)(((uintptr_t)from + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    if (to != from) munmap(from, (size_t)(to - from));
    munmap(to + bytes, HUGE_PAGE - (size_t)(to - from));
    (void)madvise(to, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* without any, ordinary pages serve */
    span *s = (span *)to;
    *s = (span){.size = bytes};
    link_free(s);
    return s;
}

/* The chunks that are there are asked for, too: what is not touched yet will lie in huge pages. */
static void want_huge(void) {
    huge = 1;
    for (span *s = free_spans; s; s = s->next_free) {
        span *first = s, *last = s;
        while (first->before) first = first->before;
        while (last->after) last = last->after;
        (void)madvise(first, (size_t)((char *)last + last->size - (char *)first), MADV_HUGEPAGE);
    }
}

static span *smallest_free(size_t size) {
    span *best = NULL;
    for (span *s = free_spans; s; s = s->next_free)
        if (s->size >= size && (!best || s->size < best->size)) best = s;
    return best;
}

void *dycl_pages_get(size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + 2 * ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (DYCL_SANITIZED || size < LEAST) {
        span *s = aligned_alloc(ALIGNMENT, size);
        if (s) s->state = MALLOCED;
        return s ? (char *)s + ALIGNMENT : NULL;
    }
    dycl_lock(DYCL_LOCK_PAGES);
    if (!huge && in_use + size > FEW) want_huge();
    span *s = smallest_free(size);
    if (!s) s = map_chunk(size > CHUNK ? size : CHUNK);
    if (!s && size < CHUNK) s = map_chunk(size);
    if (s) {
        unlink_free(s);
        if (s->size - size >= LEAST) {
            span *rest = (span *)((char *)s + size);
            *rest = (span){.before = s, .after = s->after, .size = s->size - size};
            if (rest->after) rest->after->before = rest;
            s->after = rest;
            s->size = size;
            link_free(rest);
        }
        s->state = USED;
        in_use += s->size;
    }
    dycl_unlock(DYCL_LOCK_PAGES);
    return s ? (char *)s + ALIGNMENT : NULL;
}

/* The memory of whole pages between `from` and `end` that nobody needs any more goes back; the first span's header
 * stays. */
static void return_pages(const span *s, const char *from, const char *end) {
    const uintptr_t inside = (huge ? HUGE_PAGE : (uintptr_t)sysconf(_SC_PAGESIZE)) - 1;
    uintptr_t least = ((uintptr_t)s + sizeof *s + inside) & ~inside, most = ((uintptr_t)s + s->size) & ~inside;
    uintptr_t low = (uintptr_t)from & ~inside, high = ((uintptr_t)end + inside) & ~inside;
    if (low < least) low = least;
    if (high > most) high = most;
    if (low < high) (void)madvise((void *)low, high - low, MADV_DONTNEED);
}

/* s takes in the span behind it. */
static void join(span *s) {
    span *behind = s->after;
    s->size += behind->size;
    s->after = behind->after;
    if (s->after) s->after->before = s;
}

void dycl_pages_free(void *block) {
    if (!block) return;
    span *s = (span *)((char *)block - ALIGNMENT);
    if (s->state == MALLOCED) {
        free(s);
        return;
    }
    dycl_lock(DYCL_LOCK_PAGES);
    const char *from = (char *)s, *end = from + s->size;
    in_use -= s->size;
    if (s->after && s->after->state == FREE) {
        unlink_free(s->after);
        join(s);
    }
    if (s->before && s->before->state == FREE) {
        s = s->before;
        unlink_free(s);
        join(s);
    }
    if (!s->before && !s->after) {
        munmap(s, s->size);
    } else {
        link_free(s);
        return_pages(s, from, end);
    }
    dycl_unlock(DYCL_LOCK_PAGES);
}

size_t dycl_pages_bytes(void) {
    dycl_lock(DYCL_LOCK_PAGES);
    size_t bytes = in_use;
    dycl_unlock(DYCL_LOCK_PAGES);
    return bytes;
}
