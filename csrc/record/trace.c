#include "record/trace.h"

#include <string.h>

#include "base/alloc.h"

dycl_trace *dycl_trace_create(void (*retain)(void *), void (*release)(void *)) {
    dycl_trace *trace = dycl_alloc_zero(sizeof *trace);
    if (!trace) return NULL;
    trace->retain = retain;
    trace->release = release;
    trace->room = 8;
    trace->vertices = dycl_alloc_zero(trace->room * sizeof *trace->vertices);
    if (!trace->vertices) {
        dycl_free(trace);
        return NULL;
    }
    trace->count = 1;
    return trace;
}

void dycl_trace_free(dycl_trace *trace) {
    if (!trace) return;
    for (uint32_t i = 0; i < trace->count; i++) {
        if (trace->vertices[i].segment) trace->release(trace->vertices[i].segment);
        dycl_free(trace->vertices[i].successors);
    }
    dycl_free(trace->vertices);
    dycl_free(trace);
}

void *dycl_trace_predict(const dycl_trace *trace, uint32_t position, uint32_t nth) {
    if (position >= trace->count || nth >= trace->vertices[position].successor_count) return NULL;
    return trace->vertices[trace->vertices[position].successors[nth]].segment;
}

static void to_front(dycl_trace_vertex *vertex, uint32_t nth) {
    uint32_t chosen = vertex->successors[nth];
    memmove(vertex->successors + 1, vertex->successors, nth * sizeof *vertex->successors);
    vertex->successors[0] = chosen;
}

static uint32_t add_vertex(dycl_trace *trace, uint32_t position, void *segment) {
    if (trace->count >= DYCL_TRACE_VERTICES) return UINT32_MAX;
    if (trace->count == trace->room) {
        void *block = dycl_realloc(trace->vertices, 2 * trace->room * sizeof *trace->vertices);
        if (!block) return UINT32_MAX;
        trace->vertices = block;
        trace->room *= 2;
    }
    dycl_trace_vertex *from = &trace->vertices[position];
    if (from->successor_count == from->successor_room) {
        uint32_t room = from->successor_room ? 2 * from->successor_room : 2;
        void *block = dycl_realloc(from->successors, room * sizeof *from->successors);
        if (!block) return UINT32_MAX;
        from->successors = block;
        from->successor_room = room;
    }
    uint32_t id = trace->count++;
    dycl_trace_vertex *vertex = &trace->vertices[id];
    memset(vertex, 0, sizeof *vertex);
    vertex->segment = segment;
    trace->retain(segment);
    from->successors[from->successor_count++] = id;
    to_front(from, from->successor_count - 1);
    return id;
}

uint32_t dycl_trace_advance(dycl_trace *trace, uint32_t position, void *segment, int why) {
    if (position >= trace->count) return UINT32_MAX;
    dycl_trace_vertex *from = &trace->vertices[position];
    uint32_t next = UINT32_MAX;
    for (uint32_t i = 0; i < from->successor_count && next == UINT32_MAX; i++) {
        if (trace->vertices[from->successors[i]].segment != segment) continue;
        next = from->successors[i];
        to_front(from, i);
    }
    if (next == UINT32_MAX) next = add_vertex(trace, position, segment);
    if (next != UINT32_MAX) {
        trace->vertices[next].visits++;
        trace->vertices[next].why = why;
    }
    return next;
}

uint32_t dycl_trace_case_selects(const dycl_trace *trace) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < trace->count; i++) n += trace->vertices[i].successor_count > 1;
    return n;
}
