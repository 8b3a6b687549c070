/* What the program called, where its results have a history: the names of nodes in torch's autograd graph, and the
 * views among the results, are those of the functions that were called, not of the operators that were recorded.
 *
 * A call keeps values of the segment instead of pending tensors, and of everything else only what has no life of its
 * own (numbers, names, sizes). What torch calls a node is asked of torch once for a kind of call, with operands that
 * have no memory.
 *
 * Ownership: the region owns its calls. Threads: GIL held. */
#ifndef DYCL_PY_REGION_CALLED_H
#define DYCL_PY_REGION_CALLED_H

#include "py/region/region.h"

typedef struct {
    PyObject *callable; /* borrowed for good: a function of torch's, or a getter's descriptor. NULL: not known */
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *kwnames, *kwdict; /* as a binding has them (bind/call.h) */
    uint32_t before; /* the value of this segment that the first operand had, perhaps written since; or DYCL_NONE */
    uint32_t first_value; /* of those that the segment got in the call; 0: all, it began within the call */
} dycl_made_call;

/* What the first operand is before the call, if it is pending. */
static inline uint32_t dycl_called_before(const dycl_region *region, PyObject *const *args, Py_ssize_t count) {
    if (!region->tracks || !count || !dycl_is_lazy(args[0])) return DYCL_NONE;
    const dycl_lazy *lazy = dycl_lazy_of(args[0]);
    return lazy->region == region && lazy->epoch == region->epoch ? lazy->value : DYCL_NONE;
}

/* The call was recorded; result: of the program (None: the first operand was written). Regions without gradients keep
 * nothing. Never fails: without memory, nothing is known of the call. */
void dycl_called_note(dycl_region *region, const dycl_made_call *call, PyObject *result);

/* The lazy tensor's node is called so, whatever made it: (name, which output) as torch spells it. Never fails. */
void dycl_called_say(dycl_region *region, PyObject *lazy, PyObject *name);

/* For the flush, of each result: ((name of its node in torch's spelling, which output of it), which call), or None:
 * nobody sees it, or torch did not say. New reference, or NULL with an exception. */
PyObject *dycl_called_names(dycl_region *region, const uint32_t *results, uint32_t count);
/* The same of those that other results depend on, None for the rest: what a replay has to show while it runs. */
PyObject *dycl_called_names_between(dycl_region *region, const uint32_t *values, uint32_t count);
/* What a replay computed with a history, and no other result depends on, shows such nodes from now on; handles are
 * replaced. 0, or -1 with an exception. */
int dycl_called_show(dycl_region *region, const uint32_t *values, dycl_handle *handles, uint32_t count);
/* The view that the lazy tensor is of its base, by the functions that were called. New handle; NULL without an
 * exception: they are not known. */
dycl_handle dycl_called_view(dycl_region *region, const dycl_lazy *lazy, dycl_handle base);
/* The same, by its sizes and strides where they are not. NULL with an exception. */
dycl_handle dycl_called_view_or_strided(dycl_region *region, const dycl_lazy *lazy, dycl_handle base);

/* Which call the value is a result of, or 0: it is not known. */
uint32_t dycl_called_of(const dycl_region *region, uint32_t value);

/* The region's calls, taken from it; to be freed when its next segment has begun. */
struct dycl_called_log *dycl_called_take(dycl_region *region);
void dycl_called_free(struct dycl_called_log *log);
/* The flush is over: what was made for its views is let go. */
void dycl_called_bound(dycl_region *region);
/* dycl._names' functions. 0 or -1. */
int dycl_called_set(PyObject *name, PyObject *operand, PyObject *view, PyObject *show);

#endif
