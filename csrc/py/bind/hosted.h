/* Calls of torch's functions that hosted.def has a row for: recorded as steps that run torch's own kernel. Functions
 * without a binding of their own, and what a binding does not represent (other dtypes, layouts, shapes), come here
 * before torch ends the segment.
 *
 * Ownership: results are new references. Threads: GIL held. */
#ifndef DYCL_PY_BIND_HOSTED_H
#define DYCL_PY_BIND_HOSTED_H

#include "py/bind/call.h"
#include "py/torch/form.h"

/* Calls of this callable may be recorded as that operator: 1; 0: of it there are others already; -1 with an
 * exception. */
int dycl_hosted_add(PyObject *callable, dycl_op op, int in_place);

/* Records the call. NULL without an exception: torch runs it, and region->lesson is what will be learned from that, or
 * NULL. */
PyObject *dycl_hosted_record(dycl_region *region, PyObject *callable, PyObject *const *args, Py_ssize_t count,
                             PyObject *kwnames, PyObject *kwdict);

/* One operator: its parameters, in the order of hosted.def, are found; what is NULL has its default. For bindings that
 * know them. variant: tells functions of torch apart that are recorded as the same operator, but whose results have
 * other versions. */
PyObject *dycl_hosted_record_op(dycl_call *call, dycl_op op, int variant, PyObject **parameters);

/* The same in steps, for operands that are no objects: what torch's function answers, or NULL (a reason to bail); and
 * one of its results. */
typedef struct {
    int operand_count, word_count;
    uint32_t operands[DYCL_FORM_OPERANDS];
    int64_t words[DYCL_MAX_ATTRS]; /* behind the form (hosted.def) */
} dycl_hosted_call;
dycl_form *dycl_hosted_known(dycl_call *call, dycl_op op, int variant, const dycl_hosted_call *hosted);
dycl_status dycl_hosted_node(dycl_call *call, dycl_op op, int which, dycl_dtype dtype, int rank, const int64_t *sizes,
                             const int64_t *strides, const dycl_hosted_call *hosted, uint32_t *out);

/* The lesson of the call that torch runs now, which the caller owns; NULL: there is none. */
dycl_lesson *dycl_hosted_take_lesson(dycl_region *region);

/* Where torch has its functions. Ends with a row without a name. */
typedef struct {
    dycl_op op;
    int places; /* DYCL_AT_... */
    const char *name;
} dycl_hosted_place;
extern const dycl_hosted_place dycl_hosted_places[];

#endif
