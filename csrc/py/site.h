/* A site: one accelerated callable, its statistics and its TraceGraph (segments as they follow each other).
 * Ownership: a Python object. Threads: GIL held. */
#ifndef DYCL_PY_SITE_H
#define DYCL_PY_SITE_H

#include "exec/plan.h"
#include "py/state.h"
#include "record/bail.h"

typedef struct {
    uint64_t calls;            /* regions entered */
    uint64_t plain_calls;      /* calls that ran in torch as a whole */
    uint64_t plain_grad, plain_mode, plain_disabled, plain_nested;
    uint64_t recorded;         /* operators recorded */
    uint64_t torch;            /* operators that ran in torch inside regions */
    uint64_t segments;         /* segments executed */
    uint64_t bails[DYCL_BAIL_COUNT]; /* operators left to torch, by reason */
    uint64_t flushes[DYCL_BAIL_COUNT]; /* ends of segments, by reason */
} dycl_site_stats;

typedef struct dycl_site {
    PyObject_HEAD
    PyObject *callable;        // owned: what runs inside the region; NULL while the module holds us (then module->_call_impl)
    PyObject *module;          // owned reference to a weak reference of the module, or NULL for functions
    vectorcallfunc vectorcall;
    dycl_site_stats stats;
    PyObject *left;            // owned dict: (operator, reason, file, line) -> count
    struct dycl_trace *trace;  // owned: the TraceGraph
} dycl_site;

#endif
