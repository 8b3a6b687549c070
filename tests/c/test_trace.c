/* The TraceGraph: merging, prediction, bounds. Segments are only addresses here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "record/trace.h"

static int failures;
static long references;

static void check(int ok, const char *what) {
    if (!ok) failures++, printf("FAIL %s\n", what);
}

static void retain(void *segment) { references++, ++*(int *)segment; }
static void release(void *segment) { references--, --*(int *)segment; }

static int segments[4 * DYCL_TRACE_VERTICES];

static uint32_t run(dycl_trace *trace, const char *path) { /* a call: letters name segments */
    uint32_t position = 0;
    int is_new;
    for (; *path; path++) position = dycl_trace_advance(trace, position, &segments[*path - 'a'], 0, &is_new);
    return position;
}

static char predicted(const dycl_trace *trace, uint32_t position, uint32_t nth) {
    const int *segment = dycl_trace_predict(trace, position, nth);
    return segment ? (char)('a' + (segment - segments)) : '-';
}

static void test_merge(void) {
    dycl_trace *trace = dycl_trace_create(retain, release);
    check(predicted(trace, 0, 0) == '-', "nothing is predicted before the first call");
    uint32_t after_ab = run(trace, "ab");
    check(trace->count == 3 && dycl_trace_case_selects(trace) == 0, "a straight path");
    check(predicted(trace, 0, 0) == 'a' && predicted(trace, after_ab, 0) == '-', "its prediction");
    run(trace, "acb");
    check(trace->count == 4 && dycl_trace_case_selects(trace) == 1, "a branch is a case select");
    uint32_t after_a = run(trace, "a");
    check(predicted(trace, after_a, 0) == 'c' && predicted(trace, after_a, 1) == 'b',
          "the most recent successor first");
    check(run(trace, "ab") == after_ab, "paths that meet are merged");
    for (int trips = 1; trips < 200; trips++) { /* a loop with every trip count */
        char path[256];
        memset(path, 'd', sizeof path);
        strcpy(path + trips, "e");
        run(trace, path);
    }
    check(trace->count == 6, "iterations of a loop are one vertex, whatever their number");
    uint32_t in_loop = run(trace, "dd");
    check((predicted(trace, in_loop, 0) == 'd' && predicted(trace, in_loop, 1) == 'e'), "the loop goes on or ends");
    dycl_trace_set_where(trace, in_loop, "somewhere:1");
    dycl_trace_set_where(trace, in_loop, "elsewhere:2");
    check(strcmp(trace->vertices[in_loop].where, "elsewhere:2") == 0, "where it ended");
    dycl_trace_free(trace);
    check(references == 0, "nothing is kept");
}

static void test_bounds(void) {
    dycl_trace *trace = dycl_trace_create(retain, release);
    uint32_t position = 0;
    int is_new;
    for (int i = 0; i < 4 * DYCL_TRACE_VERTICES; i++) { /* a path that never returns */
        position = dycl_trace_advance(trace, position, &segments[i], 0, &is_new);
        check(is_new && position < trace->count && trace->count <= DYCL_TRACE_VERTICES,
              "the number of vertices is bounded");
        check(references == (long)trace->count - 1, "what is forgotten is released");
    }
    for (int i = 0; i < 500; i++) dycl_trace_advance(trace, 0, &segments[rand() % 400], 0, &is_new);
    check(trace->vertices[0].successor_count <= DYCL_TRACE_SUCCESSORS, "successors are bounded");
    for (uint32_t i = 0; i < trace->vertices[0].successor_count; i++)
        for (uint32_t k = 0; k < i; k++)
            check(predicted(trace, 0, i) != predicted(trace, 0, k) ||
                      dycl_trace_predict(trace, 0, i) != dycl_trace_predict(trace, 0, k),
                  "each successor once");
    check(dycl_trace_predict(trace, UINT32_MAX, 0) == NULL, "a lost position predicts nothing");
    dycl_trace_free(trace);
    check(references == 0, "nothing is kept");
}

int main(void) {
    test_merge();
    test_bounds();
    printf(failures ? "%d failures\n" : "ok\n", failures);
    return failures != 0;
}
