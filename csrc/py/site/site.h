/* A site: one accelerated callable, its statistics and its TraceGraph (segments as they follow each other).
 *
 * Ownership: a Python object. Threads: GIL held. */
#ifndef DYCL_PY_SITE_SITE_H
#define DYCL_PY_SITE_SITE_H

#include "exec/cache/cache.h"
#include "py/site/choose.h"
#include "py/site/passes.h"
#include "py/site/steps.h"
#include "py/torch/state.h"
#include "record/bail.h"
#include "record/trace.h"

typedef struct {
    uint64_t calls;       /* regions entered */
    uint64_t plain_calls; /* calls that ran in torch as a whole */
    uint64_t plain_grad, plain_mode, plain_disabled, plain_nested;
    uint64_t plain_faster; /* measured: torch runs this callable faster, or is being looked at */
    uint64_t recorded;     /* operators recorded */
    uint64_t torch;        /* operators that ran in torch inside regions */
    uint64_t beside;       /* operators that torch ran at once beside the segment (bind/beside.h) */
    uint64_t segments;     /* segments executed */
    uint64_t deferred, recalled,
        not_deferred;     /* computations left for later, those of them that were asked for, occasions passed over */
    uint64_t ahead;       /* of these: computed while they were recorded */
    uint64_t replays;     /* of these: run node by node in torch, as no plan could */
    uint64_t updates;     /* steps of an optimizer that ran without its Python (py/entry/update.h) */
    uint64_t nodes;       /* of torch's autograd graph that results got */
    uint64_t saved_bytes; /* that the last call with a history keeps for the backward pass alone */
    uint64_t bails[DYCL_BAIL_COUNT];   /* operators left to torch, by reason */
    uint64_t flushes[DYCL_BAIL_COUNT]; /* ends of segments, by reason */
} dycl_site_stats;

#define DYCL_SITE_LEFT 256 /* distinct places at which operators were left to torch; more are only counted */

typedef struct {
    PyObject *callable; // owned
    PyObject *code;     // owned: where it was called
    int line;
    dycl_bail why;
    uint64_t count;
} dycl_left_row;

/* What py/entry/gradient.h knows. */
typedef struct {
    uint32_t wait, interval; /* calls in torch before a region is tried again: so many are left, of so many */
} dycl_gradient;

/* Calls whose results want gradients: what counts is how long it takes from one call to the next, because the backward
 * pass comes in between. */
typedef struct {
    dycl_choice choice;
    dycl_moment begun; /* the last call's time */
    uint8_t timed;     /* it counts */
    uint8_t way, hopeless, made;
    dycl_rounds rounds; /* which steps followed them */
} dycl_training;

/* What py/entry/hint.h knows. */
typedef struct {
    PyObject *marks[2]; /* owned: weak references to the marks of the last two calls; NULL: none */
    uint32_t looked_at; /* calls so far */
    uint32_t unused;    /* of these, the last ones in a row that gave no sign of use */
    uint8_t done;
} dycl_hint;

typedef struct dycl_site {
    PyObject_HEAD PyObject *callable; // owned: a function; NULL for modules
    PyObject *module;                 // owned: weak reference to the module; NULL for functions
    PyObject *methods;  // owned: sites of the module's methods, by function (py/entry/method.h); NULL: none yet
    PyObject *dict;     // owned: attributes (__name__, __wrapped__...)
    PyObject *weak;     // list of weak references to us
    PyObject *replayed; // owned: why the last replay was; NULL: there was none
    vectorcallfunc vectorcall;
    dycl_site_stats stats;
    dycl_left_row *left; // owned, grows
    int left_count, left_room;
    dycl_trace *trace;         // owned
    dycl_choice choice, ahead; /* region or torch; in a region: inline or ahead of the recording */
    dycl_training training;
    dycl_gradient gradient;
    dycl_hint hint;
    unsigned options;       /* DYCL_OPTION_ bits */
    dycl_passes *passes;    // retained; NULL: none of its results had a history
    uint64_t saved_call;    /* the call that saved_bytes is of, as they are counted */
    int replaces;           /* an optimizer's step: plain tensors may be given other values (region/replace.h) */
    uint8_t always;         /* nobody looks which way is faster: py/entry/loss.h knows */
    uint8_t given, belongs; /* an optimizer: to dycl.accelerate; to what is accelerated, as was found out (bits) */
    uint32_t belongs_at;    /* when (py/entry/optimizer.c) */
    unsigned adopted;       /* py/modules/composite.h */
    int worth_ahead;        /* a segment ran long enough for that */
    const void *address;    // the module's, while the table of py/entry/everywhere.h owns this site; NULL: a site of
                            // dycl.accelerate
    struct dycl_site *chain, *newer, *older; // borrowed: that table
    uint8_t called, aside; // since the table was last trimmed; this module runs by itself (ScriptModule...)
    uint8_t part;          // of an accelerated model
} dycl_site;

void dycl_site_left_at(dycl_site *site, PyObject *callable, dycl_bail why); /* an operator goes to torch */
void dycl_site_replayed(dycl_site *site, const char *why);                  /* a segment ran in torch, node by node */
PyObject *dycl_site_stats_dict(dycl_site *site);
PyObject *dycl_site_explain(dycl_site *site);  /* text */
struct dycl_plan_cache *dycl_site_cache(void); /* of the process */

extern int dycl_disabled; /* dycl.disable() or DYCL_DISABLE=1: every call runs in torch */

#endif
