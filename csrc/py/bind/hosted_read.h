/* From the arguments of a call of torch to the operands and attributes of a hosted operator (private to hosted*.c).
 *
 * Ownership: everything is borrowed for the call. Threads: GIL held. */
#ifndef DYCL_PY_BIND_HOSTED_READ_H
#define DYCL_PY_BIND_HOSTED_READ_H

#include "py/bind/hosted.h"

/* Whether the arguments are those of this operator; p: by its parameters, NULL where there is none. */
int dycl_hosted_match(const dycl_call *call, const dycl_hosted *h, PyObject **p);
/* Other conditions than types: nothing that torch would change, draw or warn about. */
int dycl_hosted_is_pure(dycl_op op, PyObject *const *p);
int dycl_hosted_has_index(dycl_op op); /* an operand says where others are read or written */
/* Operands and attributes, after every index was shown to lie in its dimension; for that a new segment may begin, and
 * values of the old one that were read before are stale: ask again then. OK, BAIL or ERROR */
dycl_status dycl_hosted_read_call(dycl_call *call, dycl_op op, PyObject *const *p, dycl_hosted_call *out);

#endif
