#include "py/region/scalar.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "py/region/region.h"

int dycl_scalar_read(PyObject *lazy, dycl_element *out) {
    dycl_lazy_meta meta;
    dycl_tensor_view view;
    if (dycl_lazy_describe(lazy, &meta) < 0) return -1;
    for (int i = 0; i < meta.rank; i++)
        if (meta.sizes[i] != 1) return 0;
    if (dycl_region_fetch(lazy, DYCL_BAIL_fetch) < 0) return -1;
    if (!dycl_is_lazy(lazy)) return 0; /* another thread made it plain while we waited */
    if (!dycl_abi_read(dycl_lazy_of(lazy)->real, &view)) return 0;
    out->dtype = view.dtype;
    memset(&out->value, 0, sizeof out->value);
    memcpy(&out->value, view.data, dycl_dtype_size(view.dtype));
    return 1;
}

static double as_double(const dycl_element *e) {
    if (dycl_dtype_is_half(e->dtype)) return (double)dycl_half_value(e->dtype, (uint16_t)e->value.i16);
    return e->dtype == DYCL_F64 ? e->value.f64 : (double)e->value.f32;
}

static int64_t as_int(const dycl_element *e) {
    switch (e->dtype) {
    case DYCL_I64: return e->value.i64;
    case DYCL_I32: return e->value.i32;
    case DYCL_I16: return e->value.i16;
    case DYCL_I8: return e->value.i8;
    case DYCL_BOOL: return e->value.u8 != 0; /* a view of bytes may hold any */
    default: return e->value.u8;
    }
}

int dycl_element_is_true(const dycl_element *e) {
    return dycl_dtype_is_float(e->dtype) ? as_double(e) != 0.0 : as_int(e) != 0;
}

PyObject *dycl_element_object(const dycl_element *e) {
    if (e->dtype == DYCL_BOOL) return PyBool_FromLong(e->value.u8);
    return dycl_dtype_is_float(e->dtype) ? PyFloat_FromDouble(as_double(e)) : PyLong_FromLongLong(as_int(e));
}

PyObject *dycl_element_float(const dycl_element *e) {
    return PyFloat_FromDouble(dycl_dtype_is_float(e->dtype) ? as_double(e) : (double)as_int(e));
}

PyObject *dycl_element_int(const dycl_element *e) {
    if (!dycl_dtype_is_float(e->dtype)) return PyLong_FromLongLong(as_int(e));
    double value = as_double(e);
    if (!(fabs(value) < 9.0e18)) return NULL; /* torch raises, or has its own idea */
    return PyLong_FromDouble(value);
}

PyObject *dycl_element_index(const dycl_element *e) {
    return dycl_dtype_is_int(e->dtype) ? PyLong_FromLongLong(as_int(e)) : NULL;
}
