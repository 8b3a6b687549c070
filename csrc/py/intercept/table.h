/* From torch's callables to the rows that record them.
 *
 * Ownership: the table keeps the callables. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_TABLE_H
#define DYCL_PY_INTERCEPT_TABLE_H

#include "py/bind/call.h"

/* The binding of a torch callable (NULL: none), and how it was found. */
const dycl_binding *dycl_binding_find(PyObject *callable, int *out_in_place, int *out_swapped);
/* The table, and the lazy type's methods (descriptor.c); rows.c fills both. 0 or -1. Of rows with one callable the
 * first serves. */
int dycl_binding_insert(PyObject *callable, const dycl_binding *row, int in_place, int swapped);
int dycl_binding_add_method(const char *name, PyObject *original, const dycl_binding *row, int in_place, int swapped);
/* One more callable that a row serves, unless one does already; method: its name on the lazy type, or NULL. 0 or -1. */
int dycl_bindings_add(PyObject *callable, const dycl_binding *row, int in_place, const char *method);
int dycl_bindings_setup(void);
PyObject *dycl_bindings_list(
    void); /* new list of (owner in torch, name there, row's name, parameters, "" or "in place" or "swapped") */

#endif
