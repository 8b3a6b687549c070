/* Tensors that optimizers work on: dense, f32, of the program alone. Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_DENSE_H
#define DYCL_PY_ENTRY_DENSE_H

#include <string.h>

#include "ir/infer.h"
#include "py/torch/abi.h"

/* A tensor or a parameter of just torch's class. */
static inline int dycl_dense_is_stock(PyObject *o) {
    return Py_TYPE(o) == dycl_py.parameter_type || Py_TYPE(o) == dycl_py.tensor_type;
}

static inline int dycl_dense_is_f32(PyObject *tensor, dycl_tensor_view *out) {
    const char *impl = dycl_abi_impl(tensor);
    return dycl_abi_is_plain(impl) && !dycl_abi_is_inference(impl) && dycl_abi_read(dycl_abi_borrow(tensor), out) &&
           out->dtype == DYCL_F32;
}

/* Whether its elements, of which there are *out_count, lie one behind the other, in any order. */
static inline int dycl_dense_is_one_block(const dycl_tensor_view *view, int64_t *out_count) {
    dycl_value value = {.rank = (uint8_t)view->rank};
    memcpy(value.sizes, view->sizes, (size_t)view->rank * sizeof *value.sizes);
    memcpy(value.strides, view->strides, (size_t)view->rank * sizeof *value.strides);
    *out_count = dycl_value_numel(&value);
    return dycl_value_dense(&value);
}

#endif
