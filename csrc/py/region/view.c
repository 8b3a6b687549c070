/* Views by the functions that were called (called.h). */
#include "py/region/called_log.h"
#include "py/region/track_flush.h"
#include "py/torch/places.h"

static PyObject *nth_tensor(PyObject *o, uint32_t *nth) { /* borrowed */
    if (dycl_is_tensor(o)) return (*nth)-- == 0 ? o : NULL;
    int is_list = PyList_CheckExact(o);
    for (Py_ssize_t i = 0; (is_list || PyTuple_Check(o)) && i < Py_SIZE(o); i++) {
        PyObject *found = nth_tensor(is_list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i), nth);
        if (found) return found;
    }
    return NULL;
}

static int lies_so(const dycl_region *region, uint32_t value, PyObject *tensor, dycl_handle base) {
    const dycl_value *v = &region->recorder.graph.values[value];
    dycl_tensor_view view;
    dycl_handle handle = dycl_abi_borrow(tensor);
    if (!dycl_abi_read(handle, &view) || view.rank != v->rank || view.dtype != v->dtype ||
        dycl_abi_storage_offset(handle) != dycl_abi_storage_offset(base) + v->offset ||
        dycl_abi_storage(dycl_abi_handle_impl(handle)) != dycl_abi_storage(dycl_abi_handle_impl(base)))
        return 0;
    for (int i = 0; i < v->rank; i++)
        if (view.sizes[i] != v->sizes[i] || (view.strides[i] != v->strides[i] && v->sizes[i] > 1)) return 0;
    return 1;
}

/* torch's function answers a view of a tensor that nobody sees. */
static PyObject *view_of_hidden(dycl_region *region, uint32_t index, uint32_t nth, uint32_t value, PyObject *base) {
    const dycl_value *v = &region->recorder.graph.values[value];
    PyObject *name = dycl_called_name(region, index, nth), *view = NULL;
    PyObject *sizes = dycl_py_ints(v->rank, v->sizes), *strides = dycl_py_ints(v->rank, v->strides);
    if (name && name != Py_None && sizes && strides)
        view = PyObject_CallFunction(dycl_called_python.view, "OOOOL", PyTuple_GET_ITEM(name, 0), base, sizes, strides,
                                     (long long)v->offset);
    Py_XDECREF(name);
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    return view;
}

static dycl_handle strided(const dycl_region *region, uint32_t value, dycl_handle base) {
    const dycl_value *v = &region->recorder.graph.values[value];
    return dycl_abi_view_with_history(base, v->rank, v->sizes, v->strides, dycl_abi_storage_offset(base) + v->offset);
}

/* The same, or as it lies, where it is no view to torch. */
static PyObject *hidden(dycl_region *region, uint32_t index, uint32_t nth, uint32_t value, PyObject *base) {
    PyObject *view = view_of_hidden(region, index, nth, value, base);
    if (view && view != Py_None) return view;
    Py_XDECREF(view);
    dycl_region_put_off(region);
    dycl_handle made = strided(region, value, dycl_abi_borrow(base));
    view = made ? dycl_abi_wrap(made) : NULL;
    dycl_abi_delete(made);
    return view;
}

static int is_view_of(const dycl_region *region, uint32_t index, uint32_t root) {
    const dycl_called_log *l = region->called;
    uint64_t word = l->calls[index].count ? l->words[l->calls[index].first] : DYCL_WORD_UNKNOWN;
    return (word & DYCL_WORD_TAG) == DYCL_WORD_VALUE && region->recorder.graph.values[word >> 3].root == root;
}

static PyObject *view_by(dycl_region *region, uint32_t index, uint32_t nth, uint32_t root, PyObject *base, int depth);

/* What the call takes its view of: the root, what has its tensor, or a view by a call before. New reference or NULL */
static PyObject *operand(dycl_region *region, uint32_t index, uint32_t of, uint32_t root, PyObject *base, int depth) {
    const dycl_called_log *l = region->called;
    if (region->recorder.graph.values[of].root != root) return NULL;
    dycl_handle known = dycl_track_tensor(region, of); /* the root, too, where torch answers a view of what is hidden */
    if (known) return dycl_abi_wrap(known);
    if (of == root) return Py_NewRef(base);
    if (of >= l->by_count || !l->by[of] || l->by[of] - 1 >= index) return NULL;
    return is_view_of(region, l->by[of] - 1, root)
               ? Py_XNewRef(view_by(region, l->by[of] - 1, l->nth[of], root, base, depth + 1))
               : hidden(region, l->by[of] - 1, l->nth[of], of, base);
}

/* The tensor of a value that is the root, or a view of it by calls that are known; borrowed from them. */
static PyObject *view_by(dycl_region *region, uint32_t index, uint32_t nth, uint32_t root, PyObject *base, int depth) {
    dycl_called_log *l = region->called;
    dycl_called *c = &l->calls[index];
    uint64_t word = c->count ? l->words[c->first] : DYCL_WORD_UNKNOWN;
    if (c->in_place || (word & DYCL_WORD_TAG) != DYCL_WORD_VALUE || depth > 64) return NULL;
    if (!c->made) {
        uint32_t of = (uint32_t)(word >> 3);
        PyObject *self = operand(region, index, of, root, base, depth);
        if (!self) return NULL;
        c = &l->calls[index];
        PyObject *both = dycl_called_arguments(region, c, self, 0), *made = NULL;
        int is_getter = Py_TYPE(c->callable) == &PyGetSetDescr_Type;
        if (both && is_getter)
            made = Py_TYPE(c->callable)->tp_descr_get(c->callable, self, (PyObject *)Py_TYPE(self));
        else if (both)
            made = PyObject_Call(c->callable, PyTuple_GET_ITEM(both, 0), PyTuple_GET_ITEM(both, 1));
        Py_XDECREF(both);
        Py_DECREF(self);
        if (made && PyIter_Check(made)) Py_SETREF(made, PySequence_Tuple(made));
        if (!made) return NULL;
        Py_XSETREF(l->calls[index].made, made);
        c = &l->calls[index];
    }
    return nth_tensor(c->made, &nth);
}

dycl_handle dycl_called_view(dycl_region *region, const dycl_lazy *lazy, dycl_handle base) {
    uint32_t root = region->recorder.graph.values[lazy->value].root;
    if (!lazy->called || !region->called || lazy->called > region->called->count || !dycl_called_python.view ||
        !region->called->calls[lazy->called - 1].callable)
        return NULL;
    PyObject *object = dycl_abi_wrap(base), *view = NULL;
    int state = dycl_abi_torch_function_off(), enabled = dycl_abi_grad_enabled();
    dycl_abi_torch.set_grad_enabled(true);
    if (object && lazy->value != root && is_view_of(region, lazy->called - 1, root))
        view = Py_XNewRef(view_by(region, lazy->called - 1, lazy->called_nth, root, object, 0));
    dycl_region_put_off(region);
    if (object && !view) view = view_of_hidden(region, lazy->called - 1, lazy->called_nth, lazy->value, object);
    dycl_abi_torch.set_grad_enabled(enabled != 0);
    dycl_abi_torch_function_restore(state);
    dycl_region_put_off(region); /* the view is made from its sizes then */
    int right = view && dycl_is_tensor(view) && lies_so(region, lazy->value, view, base);
    dycl_handle made = right ? dycl_abi_copy_handle(dycl_abi_borrow(view)) : NULL;
    Py_XDECREF(object);
    Py_XDECREF(view);
    return made;
}

dycl_handle dycl_called_view_or_strided(dycl_region *region, const dycl_lazy *lazy, dycl_handle base) {
    dycl_handle view = dycl_called_view(region, lazy, base);
    return view ? view : strided(region, lazy->value, base);
}

void dycl_called_bound(dycl_region *region) {
    dycl_called_log *l = region->called;
    for (uint32_t i = 0; l && i < l->count; i++) Py_CLEAR(l->calls[i].made);
}
