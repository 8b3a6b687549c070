#include "py/bind/write_through.h"

#include <string.h>

#include "ir/infer.h"
#include "py/region/track.h"
#include "py/site/site.h"

static PyObject *bail(dycl_call *call, dycl_bail why) { return dycl_call_bail(call, why); }

/* Whether torch would simply write: no gradients, no inference tensors and modes with their own rules about versions,
 * no overlap in itself. */
static int is_writable(dycl_call *call, PyObject *self, dycl_value *out) {
    dycl_region *region = call->region;
    dycl_lazy_meta meta;
    dycl_tensor_view view;
    memset(out, 0, sizeof *out);
    region->recorder.why = DYCL_BAIL_alias;
    if (dycl_abi_dispatch_inference(&region->dispatch)) return 0;
    if (dycl_is_lazy(self)) {
        if (dycl_lazy_of(self)->region != region) return 0;
        if (dycl_lazy_describe(self, &meta) < 0) return -1;
    } else {
        if (Py_TYPE(self) != dycl_py.tensor_type && Py_TYPE(self) != dycl_py.buffer_type) return 0;
        const char *impl = dycl_abi_impl(self);
        if (!dycl_abi_is_plain(impl) || dycl_abi_is_inference(impl) || !dycl_abi_read(dycl_abi_borrow(self), &view))
            return 0;
        if (dycl_abi_has_autograd_meta(impl) && dycl_abi_grad_enabled())
            return 0; /* perhaps a view of what needs a gradient */
        if (dycl_abi_has_autograd_meta(impl)) {
            PyObject *flag = dycl_py_requires_grad(self);
            if (flag != Py_False) {
                Py_XDECREF(flag);
                return flag ? 0 : -1;
            }
            Py_DECREF(flag);
        }
        meta = (dycl_lazy_meta){view.dtype, view.rank, view.sizes, view.strides};
    }
    out->dtype = (uint8_t)meta.dtype;
    out->rank = (uint8_t)meta.rank;
    memcpy(out->sizes, meta.sizes, (size_t)meta.rank * sizeof *meta.sizes);
    memcpy(out->strides, meta.strides, (size_t)meta.rank * sizeof *meta.strides);
    return dycl_value_dense(out) && dycl_value_numel(out) > 0;
}

/* The tensor behind an object, after everything was computed; NULL: there is none. */
static dycl_handle tensor_of(PyObject *o) { return dycl_is_lazy(o) ? dycl_lazy_of(o)->real : dycl_abi_borrow(o); }

static int is_as(const dycl_tensor_view *view, const dycl_value *v) {
    return view->dtype == v->dtype && view->rank == v->rank &&
           memcmp(view->sizes, v->sizes, (size_t)v->rank * sizeof *v->sizes) == 0 &&
           memcmp(view->strides, v->strides, (size_t)v->rank * sizeof *v->strides) == 0;
}

static int shares(PyObject *o, PyObject *self, uint64_t storage) {
    if (o == self || !dycl_is_tensor(o)) return 0;
    dycl_handle handle = tensor_of(o);
    return !handle || dycl_abi_storage(dycl_abi_handle_impl(handle)) == storage;
}

/* Whether an operand lies in the memory that is written: torch rejects that where it overlaps in part. */
static int operands_share(const dycl_call *call, PyObject *self, uint64_t storage) {
    Py_ssize_t named = call->kwnames ? PyTuple_GET_SIZE(call->kwnames) : 0, at = 0;
    PyObject *name, *value;
    for (Py_ssize_t i = 0; i < call->count + named; i++)
        if (shares(call->args[i], self, storage)) return 1;
    while (call->kwdict && PyDict_Next(call->kwdict, &at, &name, &value))
        if (shares(value, self, storage)) return 1;
    return 0;
}

PyObject *dycl_write_value(dycl_call *call, PyObject *self, const dycl_value *part, int64_t offset, uint32_t value,
                           int64_t most) {
    dycl_region *region = call->region;
    dycl_value whole, target;
    dycl_tensor_view to, from;
    if (dycl_track_writes(region, self, value)) return bail(call, DYCL_BAIL_grad);
    int writable = is_writable(call, self, &whole);
    if (writable < 0) return NULL;
    if (!writable) return bail(call, DYCL_BAIL_alias);
    target = part ? *part : whole;
    const dycl_value *v = dycl_call_meta(call, value);
    if (v->dtype != whole.dtype || v->rank != target.rank ||
        memcmp(v->sizes, target.sizes, (size_t)v->rank * sizeof *v->sizes) || dycl_value_numel(v) == 0 ||
        (most && dycl_value_numel(v) > most))
        return bail(call, DYCL_BAIL_alias);
    PyObject *source = dycl_lazy_new(region, value), *result = NULL;
    if (!source || dycl_region_flush(region, DYCL_BAIL_write) < 0) goto done;
    region->recorder.why = DYCL_BAIL_alias;
    dycl_handle handle = tensor_of(self), made = tensor_of(source);
    if (!handle || !made || !dycl_abi_read(handle, &to) || !dycl_abi_read(made, &from) || !is_as(&to, &whole))
        goto done;
    uint64_t storage = dycl_abi_storage(dycl_abi_handle_impl(handle));
    if (storage == dycl_abi_storage(dycl_abi_handle_impl(made)) || operands_share(call, self, storage))
        goto done; /* torch knows what overlaps */
    size_t element = dycl_dtype_size(to.dtype);
    dycl_kern_copy((char *)to.data + offset * (int64_t)element, target.strides, from.data, from.strides, target.sizes,
                   target.rank, element);
    dycl_abi_add_version(dycl_abi_handle_impl(handle), 1);
    region->site->stats.recorded++;
    result = Py_NewRef(self);
done:
    Py_XDECREF(source);
    return result;
}

PyObject *dycl_write_rows(dycl_call *call, PyObject *self, int64_t dim, PyObject *index, PyObject *source) {
    dycl_region *region = call->region;
    dycl_value whole;
    dycl_tensor_view to, from, rows;
    int64_t sizes[DYCL_MAX_RANK], *at;
    if (dycl_track_writes_from(region, self, source)) return bail(call, DYCL_BAIL_grad);
    int writable = is_writable(call, self, &whole);
    if (writable < 0) return NULL;
    if (!writable || dim < 0 || dim >= whole.rank || (dycl_is_lazy(index) && dycl_lazy_of(index)->region != region) ||
        (dycl_is_lazy(source) && dycl_lazy_of(source)->region != region))
        return bail(call, DYCL_BAIL_alias);
    if (dycl_region_flush(region, DYCL_BAIL_write) < 0) return NULL;
    region->recorder.why = DYCL_BAIL_alias;
    dycl_handle handle = tensor_of(self), made = tensor_of(source), positions = tensor_of(index);
    if (!handle || !made || !positions || !dycl_abi_read(handle, &to) || !dycl_abi_read(made, &from) ||
        !dycl_abi_read(positions, &rows))
        return NULL;
    if (!is_as(&to, &whole) || rows.dtype != DYCL_I64 || rows.rank != 1 || from.dtype != to.dtype ||
        from.rank != to.rank || from.sizes[dim] != rows.sizes[0])
        return NULL;
    uint64_t storage = dycl_abi_storage(dycl_abi_handle_impl(handle));
    if (storage == dycl_abi_storage(dycl_abi_handle_impl(made)) ||
        storage == dycl_abi_storage(dycl_abi_handle_impl(positions)))
        return NULL;
    for (int d = 0; d < to.rank; d++) {
        sizes[d] = d == dim ? 1 : to.sizes[d];
        if (d != dim && from.sizes[d] != to.sizes[d]) return NULL;
    }
    at = rows.data;
    for (int64_t i = 0; i < rows.sizes[0]; i++) /* all of them first: torch raises before it writes */
        if (at[i * rows.strides[0]] < 0 || at[i * rows.strides[0]] >= to.sizes[dim]) return bail(call, DYCL_BAIL_index);
    int64_t element = (int64_t)dycl_dtype_size(to.dtype);
    for (int64_t i = 0; i < rows.sizes[0]; i++)
        dycl_kern_copy((char *)to.data + at[i * rows.strides[0]] * to.strides[dim] * element, to.strides,
                       (const char *)from.data + i * from.strides[dim] * element, from.strides, sizes, to.rank,
                       (size_t)element);
    dycl_abi_add_version(dycl_abi_handle_impl(handle), 1);
    region->site->stats.recorded++;
    return Py_NewRef(self);
}
