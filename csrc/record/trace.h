/* The TraceGraph of a site: which segment follows which, merged over all calls (Terra, NeurIPS'21, section 4). A vertex with several successors
 * is a case select: which one runs is known only when Python has recorded it.
 *
 * Ownership: a trace holds references to segments through the functions it was given. Threads: GIL held.
 * Bounded: at DYCL_TRACE_VERTICES no vertex is added any more; such calls go without prediction. */
#ifndef DYCL_RECORD_TRACE_H
#define DYCL_RECORD_TRACE_H

#include <stdint.h>

#include "base/status.h"

#define DYCL_TRACE_VERTICES 4096

typedef struct {
    void *segment;       /* retained; NULL for the entry */
    uint32_t *successors; /* most recent first */
    uint32_t successor_count, successor_room;
    uint64_t visits;
    int why;             /* the reason its last run was flushed for (dycl_bail) */
} dycl_trace_vertex;

typedef struct dycl_trace {
    dycl_trace_vertex *vertices; /* vertex 0 is the entry of the call */
    uint32_t count, room;
    void (*retain)(void *segment);
    void (*release)(void *segment);
} dycl_trace;

dycl_trace *dycl_trace_create(void (*retain)(void *), void (*release)(void *)); /* NULL: out of memory */
void dycl_trace_free(dycl_trace *trace);

/* The segment of the nth most recent successor of a position; NULL when there are no more. */
void *dycl_trace_predict(const dycl_trace *trace, uint32_t position, uint32_t nth);
/* The position after that segment ran; merges a new vertex when the path is new. Position UINT32_MAX: lost (bound reached). */
uint32_t dycl_trace_advance(dycl_trace *trace, uint32_t position, void *segment, int why);
uint32_t dycl_trace_case_selects(const dycl_trace *trace); /* vertices with several successors */

#endif
