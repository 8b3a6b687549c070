/* torch.nn.functional.interpolate. */
#include <math.h>
#include <string.h>

#include "py/bind/bind.h"

static const struct {
    const char *name;
    dycl_resize_kind kind;
    int spatial; /* 0: one or two dimensions */
} modes[] = {{"nearest", DYCL_RESIZE_NEAREST, 0},
             {"nearest-exact", DYCL_RESIZE_NEAREST_EXACT, 0},
             {"linear", DYCL_RESIZE_LINEAR, 1},
             {"bilinear", DYCL_RESIZE_LINEAR, 2},
             {"bicubic", DYCL_RESIZE_CUBIC, 2}};

/* One number for all dimensions, or one each. */
static dycl_status scales(dycl_call *call, PyObject *o, int spatial, double *out) {
    int several = PyTuple_Check(o) || PyList_CheckExact(o);
    if (several && PySequence_Fast_GET_SIZE(o) != spatial)
        return dycl_build_bail(&call->region->recorder, DYCL_BAIL_arguments);
    for (int i = 0; i < spatial; i++) {
        dycl_status status = dycl_call_f64_or(call, several ? PySequence_Fast_GET_ITEM(o, i) : o, 0, &out[i]);
        if (status != DYCL_OK) return status;
    }
    return DYCL_OK;
}

/* input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias */
static PyObject *interpolate(dycl_call *call, const dycl_binding *row) {
    uint32_t x, out = 0;
    int count, mode = 0, align = 0, antialias;
    int64_t size[2], attrs[6];
    double scale[2] = {0, 0};
    dycl_recorder *r = &call->region->recorder;
    (void)row;
    DYCL_CALL_TRY(dycl_call_value(call, call->p[0], &x));
    dycl_value v = *meta(call, x);
    int spatial = v.rank - 2;
    if (call->p[3]) {
        if (!PyUnicode_Check(call->p[3])) return dycl_call_bail(call, DYCL_BAIL_arguments);
        for (mode = sizeof modes / sizeof *modes - 1; mode > 0; mode--)
            if (PyUnicode_CompareWithASCIIString(call->p[3], modes[mode].name) == 0) break;
        if (mode == 0 && PyUnicode_CompareWithASCIIString(call->p[3], modes[0].name) != 0)
            return dycl_call_bail(call, DYCL_BAIL_arguments);
    }
    if (spatial < 1 || spatial > 2 || (modes[mode].spatial && modes[mode].spatial != spatial))
        return dycl_call_bail(call, DYCL_BAIL_shape);
    if (modes[mode].spatial)
        DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[4], 0, &align));
    else if (dycl_call_given(call->p[4])) /* an error */
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    DYCL_CALL_TRY(dycl_call_bool_or(call, call->p[6], 0, &antialias));
    if (antialias || (dycl_call_given(call->p[5]) && call->p[5] != Py_False) ||
        dycl_call_given(call->p[1]) == dycl_call_given(call->p[2]))
        return dycl_call_bail(call, DYCL_BAIL_arguments);
    if (dycl_call_given(call->p[1])) {
        DYCL_CALL_TRY(dycl_call_ints(call, call->p[1], spatial, &count, size));
        if (count != spatial && !PyLong_CheckExact(call->p[1])) return dycl_call_bail(call, DYCL_BAIL_arguments);
        if (count < spatial) size[1] = size[0];
    } else {
        DYCL_CALL_TRY(scales(call, call->p[2], spatial, scale));
        for (int i = 0; i < spatial; i++) {
            if (!(scale[i] > 0 && (double)v.sizes[2 + i] * scale[i] < 1e9))
                return dycl_call_bail(call, DYCL_BAIL_arguments);
            size[i] = (int64_t)((double)v.sizes[2 + i] * scale[i]);
            int simple = size[i] == v.sizes[2 + i] || size[i] == 2 * v.sizes[2 + i];
            if (mode == 0 && spatial == 2 && simple) scale[i] = 0; /* torch ignores the scale then */
        }
    }
    attrs[0] = modes[mode].kind;
    attrs[1] = align | (spatial == 1) << 1;
    for (int i = 0; i < 2; i++) { /* one spatial dimension is the second of two, of which the first has size 1 */
        int k = i - (2 - spatial);
        attrs[2 + i] = k < 0 ? 1 : size[k];
        attrs[4 + i] = dycl_f64_attr(k < 0 ? 0 : scale[k]);
    }
    if (spatial == 1) {
        if (!dycl_value_contiguous(&v)) return dycl_call_bail(call, DYCL_BAIL_layout);
        DYCL_CALL_TRY(dycl_build_unsqueeze(r, x, 2, &x));
    }
    DYCL_CALL_TRY(dycl_build_node(r, DYCL_OP_resize2d, 1, &x, 6, attrs, &out));
    if (spatial == 1) {
        int64_t plain[DYCL_MAX_RANK]; /* one row is never channels last */
        DYCL_CALL_TRY(dycl_build_select(r, out, 2, 0, &out));
        dycl_strides_contiguous(3, meta(call, out)->sizes, plain);
        DYCL_CALL_TRY(dycl_build_dense(r, out, plain, &out));
    }
    return dycl_call_finish(call, DYCL_OK, out);
}

dycl_binding dycl_bindings_resize[] = {
    ROW("interpolate", F, "input size scale_factor mode align_corners recompute_scale_factor antialias", interpolate),
    {0},
};
