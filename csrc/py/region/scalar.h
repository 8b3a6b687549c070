/* Fetching one element. Threads: GIL held. */
#ifndef DYCL_PY_REGION_SCALAR_H
#define DYCL_PY_REGION_SCALAR_H

#include "ir/graph.h"
#include "py/torch/state.h"

typedef struct {
    dycl_dtype dtype;
    dycl_scalar value;
} dycl_element;

/* Computes the tensor and reads its only element. 1; 0 when it has not exactly one; -1 with an exception. */
int dycl_scalar_read(PyObject *lazy, dycl_element *out);
int dycl_element_is_true(const dycl_element *element);
/* New reference; NULL without an exception where torch must answer (or raise). */
PyObject *dycl_element_object(const dycl_element *element); /* item(): bool, int or float */
PyObject *dycl_element_float(const dycl_element *element);
PyObject *dycl_element_int(const dycl_element *element);
PyObject *dycl_element_index(const dycl_element *element);

#endif
