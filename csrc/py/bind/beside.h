/* Operators that torch runs at once beside the segment that is recorded, which goes on: what has no tensor among its
 * arguments (random numbers, ranges, lists of numbers), and what needs the values of its operands now (the positions of
 * what is not zero). They neither read what is pending nor write what it reads. Random numbers are thereby drawn by
 * torch's own generator in the order of the program.
 *
 * Results are lazy tensors that are computed already, so that operators in place are recorded on them.
 *
 * Ownership: results are new references; arguments are borrowed. Threads: GIL held; torch may give it up: values of the
 * graph that were asked for before such a call are stale afterwards. */
#ifndef DYCL_PY_BIND_BESIDE_H
#define DYCL_PY_BIND_BESIDE_H

#include "py/bind/call.h"

/* A builtin of torch whose arguments hold no tensor, and nothing that may hide one. */
int dycl_beside_suits(PyObject *function, PyObject *const *args, Py_ssize_t count, PyObject *kwnames, PyObject *kwdict);
/* Such a call. fresh: the function makes a tensor that nobody else has. */
PyObject *dycl_beside_run(dycl_region *region, PyObject *function, PyObject *const *args, Py_ssize_t count,
                          PyObject *kwdict, int fresh);

/* The call that was bound, of the row's function, on the values of its operands, which are computed first. It makes
 * fresh tensors, and changes none. NULL with an exception, or for BAIL. */
PyObject *dycl_beside_values(dycl_call *call, const dycl_binding *row);
/* The call of the row's function, where `stand_in` takes the place of the tensor `of`; no other tensor may be among the
 * arguments (BAIL). */
PyObject *dycl_beside_instead(dycl_call *call, const dycl_binding *row, PyObject *of, PyObject *stand_in);
/* The same, where the first argument is a tensor of which only sizes, strides and dtype matter. */
PyObject *dycl_beside_like(dycl_call *call, const dycl_binding *row);
/* A plain tensor that nobody else has, as a computed lazy tensor. Takes the reference, NULL too; what is no such tensor
 * stays as it is. */
PyObject *dycl_beside_adopt(dycl_region *region, PyObject *result);
/* A tensor of torch's with such dtype, sizes and strides, whatever it holds. */
PyObject *dycl_beside_blank(dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides);

#endif
