/* base/heap: blocks keep what is written to them through any order of sizes and frees, in several threads; memory is
 * reused; a fork in the middle leaves both processes working. base/pages: the same for large blocks, whose memory goes
 * back to the system. */
#define _GNU_SOURCE
#include "base/heap.h"
#include "base/pages.h"
#include "base/headroom.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks, failures;

static void expect(int condition, const char *what) {
    __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
    if (condition) return;
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    printf("FAILED: %s\n", what);
}

static void *resize(void *block, size_t size) { return dycl_heap.resize(dycl_heap.context, block, size); }

static uint64_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static int holds(const unsigned char *block, size_t size, unsigned char value) {
    for (size_t i = 0; i < size; i++)
        if (block[i] != value) return 0;
    return 1;
}

#define KEPT 300

static void *churn(void *argument) {
    uint64_t state = (uint64_t)(uintptr_t)argument;
    unsigned char *blocks[KEPT] = {0};
    size_t sizes[KEPT] = {0};
    for (int round = 0; round < 60000; round++) {
        int at = (int)(next(&state) % KEPT);
        unsigned char value = (unsigned char)(at + 1);
        size_t size = next(&state) % 5 ? (size_t)1 << next(&state) % 15 : 1;
        if (next(&state) % 50 == 0) size = 100000 + next(&state) % 100000; /* around where malloc takes over */
        size = size / 2 + next(&state) % (size / 2 + 1) + 1;
        if (next(&state) % 3 == 0) size = 0;
        if (blocks[at] && !holds(blocks[at], sizes[at], value)) expect(0, "a block keeps what is in it");
        unsigned char *block = resize(blocks[at], size);
        if (size) {
            size_t kept = size < sizes[at] ? size : sizes[at];
            if (!block || (uintptr_t)block % 16 || !holds(block, kept, value)) {
                expect(0, "a resized block keeps what is in it, aligned");
                break;
            }
            memset(block, value, size);
        }
        blocks[at] = block;
        sizes[at] = size;
    }
    for (int i = 0; i < KEPT; i++) resize(blocks[i], 0);
    return NULL;
}

static void test_sizes(void) {
    for (size_t size = 1; size < 300000; size += size < 3000 ? 1 : 777) {
        size_t before = dycl_heap_bytes();
        unsigned char *block = resize(NULL, size);
        size_t taken = dycl_heap_bytes() - before;
        memset(block, 7, size);
        if (size + 16 <= 131072)
            expect(taken >= size + 16 && taken <= (size + 16) * 5 / 4 + 64,
                   "a block takes its size and at most a quarter more");
        else
            expect(taken == size + 16, "large blocks, which are malloc's, count too");
        unsigned char *same = resize(block, size);
        expect(same == block, "the same size is the same block");
        resize(block, 0);
        expect(dycl_heap_bytes() == before, "all of it comes back");
    }
    expect(resize(NULL, SIZE_MAX) == NULL && resize(NULL, SIZE_MAX - 8) == NULL, "too much is no memory");
    printf("sizes: done\n");
}

static size_t resident(void) {
    long total = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* What the heap is for: long-lived small blocks among growing short-lived ones do not pin the latter's memory. */
static void test_no_pinning(void) {
    static void *kept[4 * 3000];
    int count = 0;
    size_t before = resident();
    for (size_t n = 0; n < 3000; n++) {
        size_t size = 60000 + 128 * n;
        void *a = malloc(size), *b = malloc(size);
        memset(a, 1, size), memset(b, 1, size);
        for (int i = 0; i < 4; i++) kept[count++] = resize(NULL, 1500);
        free(a);
        for (int i = 1; i <= 4; i++) memset(kept[count - i], 1, 1500);
        free(b);
    }
    size_t grown = resident() - before;
#if !defined(__SANITIZE_ADDRESS__) &&                                                                                  \
    !defined(__SANITIZE_THREAD__) /* keeps what was freed for a while, or takes memory itself */
    expect(grown < (size_t)64 << 20, "short-lived memory is reused"); /* 18 MB are kept */
#endif
    while (count) resize(kept[--count], 0);
    printf("no pinning: %zu MB\n", grown >> 20);
}

#define LARGE_KEPT 40

/* Large blocks of all sizes in any order: each keeps its contents at both ends and in the middle, and none lies in
 * another. */
static void *churn_large(void *argument) {
    uint64_t state = (uint64_t)(uintptr_t)argument;
    unsigned char *blocks[LARGE_KEPT] = {0};
    size_t sizes[LARGE_KEPT] = {0};
    for (int round = 0; round < 4000; round++) {
        int at = (int)(next(&state) % LARGE_KEPT);
        unsigned char value = (unsigned char)next(&state);
        size_t size = (size_t)1 << next(&state) % 24, part = 300;
        size += next(&state) % size;
        if (next(&state) % 300 == 0) size += (size_t)40 << 20; /* more than a chunk */
        if (part > size) part = size;
        if (blocks[at]) {
            unsigned char *old = blocks[at], was = old[0];
            size_t ends = sizes[at] < part ? sizes[at] : part;
            if (!holds(old, ends, was) || !holds(old + sizes[at] - ends, ends, was) ||
                !holds(old + (sizes[at] - ends) / 2, ends, was))
                expect(0, "a large block keeps what is in it");
            dycl_pages_free(old);
            blocks[at] = NULL;
            if (next(&state) % 2) continue;
        }
        unsigned char *block = dycl_pages_get(size);
        if (!block || (uintptr_t)block % 64) {
            expect(0, "a large block is aligned");
            break;
        }
        memset(block, value, part);
        memset(block + size - part, value, part);
        memset(block + (size - part) / 2, value, part);
        blocks[at] = block;
        sizes[at] = size;
    }
    for (int i = 0; i < LARGE_KEPT; i++) dycl_pages_free(blocks[i]);
    return NULL;
}

/* Huge pages would be 2 MiB for the first of these. */
static void test_little(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    enum { SIZE = 300000 };
    size_t before = resident();
    unsigned char *a = dycl_pages_get(SIZE), *b = dycl_pages_get(SIZE);
    memset(a, 1, SIZE), memset(b, 2, SIZE);
    expect(resident() < before + 3 * SIZE, "little memory lies in small pages");
    dycl_pages_free(a);
    expect(resident() < before + 2 * SIZE, "and goes back");
    expect(holds(b, SIZE, 2), "what stands keeps what is in it");
    dycl_pages_free(b);
#endif
}

static void test_large(void) {
    size_t before __attribute__((unused)) = resident();
    churn_large((void *)(uintptr_t)3);
#if !defined(__SANITIZE_ADDRESS__) &&                                                                                  \
    !defined(__SANITIZE_THREAD__) /* malloc's there, or with memory of its own beside */
    expect(resident() < before + ((size_t)8 << 20), "memory of large blocks goes back");
    void *blocks[100], *border = NULL;
    before = resident();
    for (int i = 0; i < 100; i++) {
        blocks[i] = dycl_pages_get(1000000);
        memset(blocks[i], 1, 1000000);
    }
    size_t used = dycl_pages_bytes(), grown = resident() - before;
    expect(used >= 100000000 && used < 101000000 && grown < 110000000, "large blocks lie close together");
    for (int i = 0; i < 100; i++)
        if (i % 33) dycl_pages_free(blocks[i]); /* every chunk still has a block */
    expect(resident() < before + ((size_t)20 << 20), "memory between blocks goes back");
    border = dycl_pages_get(20000000);
    memset(border, 2, 20000000);
    for (int i = 0; i < 100; i += 33) expect(holds(blocks[i], 1000000, 1), "what stands keeps what is in it");
    for (int i = 0; i < 100; i += 33) dycl_pages_free(blocks[i]);
    dycl_pages_free(border);
    expect(dycl_pages_bytes() == 0, "all large blocks come back");
    expect(dycl_pages_get(SIZE_MAX) == NULL && dycl_pages_get(SIZE_MAX / 2) == NULL, "too much is no memory");
#endif
    printf("large blocks: done\n");
}

static void *churn_both(void *argument) {
    churn_large(argument);
    return churn(argument);
}

static void test_threads_and_forks(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i < 2 ? churn : churn_both, (void *)(i + 11));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            void *block = resize(NULL, 100);
            block = resize(block, 1000);
            resize(block, 0);
#ifndef __SANITIZE_ADDRESS__ /* its own lock may be held at a fork */
            void *large = dycl_pages_get(3000000);
            if (!large) block = NULL;
            dycl_pages_free(large);
#endif
            _exit(block ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        expect(status == 0, "a forked child allocates");
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    expect(1, "threads are done");
    printf("threads and forks: done\n");
}

int main(void) {
    test_little();
    test_sizes();
    test_no_pinning();
    test_large();
    expect(!dycl_memory_headroom((size_t)1 << 60), "no machine has plenty of an exabyte");
    churn((void *)(uintptr_t)5);
    size_t before = dycl_heap_bytes();
    test_threads_and_forks();
    expect(before == 0 && dycl_heap_bytes() == 0, "nothing is left");
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
