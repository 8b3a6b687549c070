#include "record/trace.h"

#include <string.h>

#include "base/alloc.h"

dycl_trace *dycl_trace_create(void (*retain)(void *), void (*release)(void *)) {
    dycl_trace *trace = dycl_alloc_zero(sizeof *trace);
    if (!trace) return NULL;
    trace->retain = retain;
    trace->release = release;
    trace->room = 8;
    trace->table_room = 16;
    trace->vertices = dycl_alloc_zero(trace->room * sizeof *trace->vertices);
    trace->table = dycl_alloc_zero(trace->table_room * sizeof *trace->table);
    if (!trace->vertices || !trace->table) {
        dycl_free(trace->vertices);
        dycl_free(trace->table);
        dycl_free(trace);
        return NULL;
    }
    trace->count = 1;
    return trace;
}

static void free_vertex(const dycl_trace *trace, dycl_trace_vertex *vertex) {
    if (vertex->segment) trace->release(vertex->segment);
    dycl_free(vertex->successors);
    dycl_free(vertex->where);
}

void dycl_trace_forget(dycl_trace *trace) {
    for (uint32_t i = 0; i < trace->count; i++) free_vertex(trace, &trace->vertices[i]);
    memset(&trace->vertices[0], 0, sizeof trace->vertices[0]);
    memset(trace->table, 0, trace->table_room * sizeof *trace->table);
    trace->count = 1;
}

void dycl_trace_free(dycl_trace *trace) {
    if (!trace) return;
    dycl_trace_forget(trace);
    dycl_free(trace->vertices);
    dycl_free(trace->table);
    dycl_free(trace);
}

void *dycl_trace_predict(const dycl_trace *trace, uint32_t position, uint32_t nth) {
    if (position >= trace->count || nth >= trace->vertices[position].successor_count) return NULL;
    return trace->vertices[trace->vertices[position].successors[nth]].segment;
}

static uint32_t *find(const dycl_trace *trace,
                      const void *segment) { /* its entry of the table, or the free one where it belongs */
    uint32_t at =
        (uint32_t)(((uint64_t)(uintptr_t)segment * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & (trace->table_room - 1);
    while (trace->table[at] && trace->vertices[trace->table[at]].segment != segment)
        at = (at + 1) & (trace->table_room - 1);
    return &trace->table[at];
}

int dycl_trace_knows(const dycl_trace *trace, const void *segment) { return *find(trace, segment) != 0; }

static int grow(dycl_trace *trace) {
    if (trace->count == trace->room) {
        void *block = dycl_realloc(trace->vertices, 2 * trace->room * sizeof *trace->vertices);
        if (!block) return 0;
        trace->vertices = block;
        trace->room *= 2;
    }
    if (2 * (trace->count + 1) > trace->table_room) {
        uint32_t *table = dycl_alloc_zero(2 * trace->table_room * sizeof *table);
        if (!table) return 0;
        dycl_free(trace->table);
        trace->table = table;
        trace->table_room *= 2;
        for (uint32_t i = 1; i < trace->count; i++) *find(trace, trace->vertices[i].segment) = i;
    }
    return 1;
}

static uint32_t add_vertex(dycl_trace *trace, void *segment) {
    if (!grow(trace)) return UINT32_MAX;
    uint32_t id = trace->count++;
    dycl_trace_vertex *vertex = &trace->vertices[id];
    memset(vertex, 0, sizeof *vertex);
    trace->retain(segment);
    *find(trace, segment) = id;
    vertex->segment = segment;
    return id;
}

/* The edge, as the most recent one. */
static void take_edge(dycl_trace_vertex *from, uint32_t to) {
    uint32_t nth = 0;
    while (nth < from->successor_count && from->successors[nth] != to) nth++;
    if (nth == from->successor_count) {
        if (from->successor_count == from->successor_room && from->successor_room < DYCL_TRACE_SUCCESSORS) {
            uint32_t room = from->successor_room ? 2 * from->successor_room : 2;
            void *block = dycl_realloc(from->successors, room * sizeof *from->successors);
            if (!block) return; /* a prediction less */
            from->successors = block;
            from->successor_room = room;
        }
        if (from->successor_count < from->successor_room)
            from->successor_count++;
        else
            nth--;
    }
    memmove(from->successors + 1, from->successors, nth * sizeof *from->successors);
    from->successors[0] = to;
}

uint32_t dycl_trace_advance(dycl_trace *trace, uint32_t position, void *segment, int why, int *out_new) {
    *out_new = 0;
    uint32_t next = *find(trace, segment);
    if (!next) {
        if (trace->count >= DYCL_TRACE_VERTICES) {
            dycl_trace_forget(trace);
            position = 0;
        }
        next = add_vertex(trace, segment);
        if (next == UINT32_MAX) return next;
        *out_new = 1;
    }
    if (position < trace->count) take_edge(&trace->vertices[position], next);
    trace->vertices[next].visits++;
    trace->vertices[next].why = why;
    return next;
}

void dycl_trace_set_where(dycl_trace *trace, uint32_t position, const char *where) {
    dycl_trace_vertex *vertex = &trace->vertices[position];
    size_t size = strlen(where) + 1;
    dycl_free(vertex->where);
    vertex->where = dycl_alloc(size);
    if (vertex->where) memcpy(vertex->where, where, size);
}

uint32_t dycl_trace_case_selects(const dycl_trace *trace) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < trace->count; i++) n += trace->vertices[i].successor_count > 1;
    return n;
}
