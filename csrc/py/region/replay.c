#include "py/region/replay.h"

#include "base/alloc.h"
#include "py/region/called.h"
#include "py/region/track.h"

int dycl_replay_always;

static PyObject *run_nodes; // owned: dycl._replay.run

int dycl_replay_set(PyObject *function) {
    Py_XSETREF(run_nodes, Py_NewRef(function));
    return 0;
}

/* Marks the values that the outputs depend on. NULL: no memory. */
static uint8_t *needed_values(const dycl_graph *graph, const uint32_t *outputs, uint32_t count) {
    uint8_t *needed = dycl_alloc_zero(graph->value_count + 1);
    if (!needed) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) needed[outputs[i]] = 1;
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        for (int i = 0; i < node->operand_count && needed[node->out]; i++)
            if (operands[i] != DYCL_NONE) needed[operands[i]] = 1;
    }
    return needed;
}

PyObject *dycl_replay_words(int count, const uint32_t *values) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *word = values[i] == DYCL_NONE ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(values[i]);
        if (!word) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, word);
    }
    return tuple;
}

/* As dycl._replay.Node. */
static PyObject *node_tuple(const dycl_graph *graph, const dycl_node *node) {
    const dycl_value *out = &graph->values[node->out];
    return Py_BuildValue("(sINNiNN)", dycl_op_get((dycl_op)node->op)->name, node->out,
                         dycl_replay_words(node->operand_count, dycl_node_operands(graph, node)),
                         dycl_py_ints(node->attr_count, dycl_node_attrs(graph, node)), (int)out->dtype,
                         dycl_py_ints(out->rank, out->sizes), dycl_py_ints(out->rank, out->strides));
}

static PyObject *node_list(const dycl_graph *graph, const uint8_t *needed) {
    PyObject *list = PyList_New(0);
    for (uint32_t n = 0; list && n < graph->node_count; n++) {
        if (!needed[graph->nodes[n].out]) continue;
        PyObject *tuple = node_tuple(graph, &graph->nodes[n]);
        if (!tuple || PyList_Append(list, tuple) < 0) Py_CLEAR(list);
        Py_XDECREF(tuple);
    }
    return list;
}

static PyObject *number(dycl_dtype dtype, dycl_scalar scalar) {
    switch (dtype) {
    case DYCL_BF16:
    case DYCL_F16:
    case DYCL_F32: return Py_BuildValue("(di)", (double)scalar.f32, (int)dtype);
    case DYCL_F64: return Py_BuildValue("(di)", scalar.f64, (int)dtype);
    case DYCL_I64: return Py_BuildValue("(Li)", (long long)scalar.i64, (int)dtype);
    case DYCL_I32: return Py_BuildValue("(ii)", (int)scalar.i32, (int)dtype);
    case DYCL_I16: return Py_BuildValue("(ii)", (int)scalar.i16, (int)dtype);
    case DYCL_I8: return Py_BuildValue("(ii)", (int)scalar.i8, (int)dtype);
    default: return Py_BuildValue("(ii)", (int)scalar.u8, (int)dtype);
    }
}

/* What is there before the first node: the feeds' tensors, and numbers. */
static PyObject *begin_values(const dycl_graph *graph, const dycl_scalar *scalars, const dycl_handle *feeds,
                              const uint8_t *needed) {
    PyObject *dict = PyDict_New();
    for (uint32_t v = 0; dict && v < graph->value_count; v++) {
        const dycl_value *value = &graph->values[v];
        if (!needed[v] || value->kind == DYCL_VALUE_NODE) continue;
        PyObject *key = PyLong_FromUnsignedLong(v), *made;
        if (value->kind == DYCL_VALUE_SCALAR) {
            made = number((dycl_dtype)value->dtype, scalars[value->source]);
        } else {
            made = dycl_abi_wrap(feeds[value->source]);
        }
        if (!key || !made || PyDict_SetItem(dict, key, made) < 0) Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(made);
    }
    return dict;
}

static PyObject *call(PyObject *nodes, PyObject *values, PyObject *outputs, PyObject *history, PyObject *names,
                      PyObject *errors, PyObject *versions) {
    if (!run_nodes) {
        PyErr_SetString(PyExc_SystemError, "dycl: nothing to replay with");
        return NULL;
    }
    /* what was recorded required gradients or not, whatever the mode is by now; and torch's functions must not come
     * back to our mode */
    int state = dycl_abi_torch_function_off(), grad = dycl_abi_grad_enabled();
    PyObject *done = grad ? PyObject_CallOneArg(dycl_py.set_grad_enabled, Py_False) : Py_NewRef(Py_None);
    PyObject *result =
        done ? PyObject_CallFunctionObjArgs(run_nodes, nodes, values, outputs, history, names, errors, versions, NULL)
             : NULL;
    Py_XDECREF(done);
    if (grad) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        done = PyObject_CallOneArg(dycl_py.set_grad_enabled, Py_True);
        if (type) {
            PyErr_Clear();
            PyErr_Restore(type, value, traceback);
        }
        if (!done) Py_CLEAR(result);
        Py_XDECREF(done);
    }
    dycl_abi_torch_function_restore(state);
    return result;
}

/* The frames of the replay are no part of the program. */
static void forget_frames(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && PyException_SetTraceback(value, Py_None) < 0) PyErr_Clear();
    Py_XDECREF(traceback);
    PyErr_Restore(type, value, NULL);
}

static int take_handles(dycl_region *region, PyObject *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        region->handles[i] = NULL;
        if (PyList_GET_ITEM(tensors, i) == Py_None) continue; /* an operator raised */
        dycl_handle made = dycl_abi_borrow(PyList_GET_ITEM(tensors, i));
        region->handles[i] =
            dycl_track_has(region, region->outputs[i]) ? dycl_abi_copy_handle(made) : dycl_abi_detach(made);
        if (region->handles[i]) continue;
        while (i-- > 0) dycl_abi_delete(region->handles[i]);
        return -1;
    }
    return 0;
}

/* What has no handle is no output. */
static void leave_out(dycl_region *region, uint32_t *count, uint32_t *shown) {
    uint32_t left = 0, left_shown = 0, left_replaced = 0;
    for (uint32_t i = 0; i < *count; i++) region->output_of[region->outputs[i]] = 0;
    for (uint32_t i = 0; i < *count; i++) {
        if (!region->handles[i]) continue;
        if (i < region->replaced_count) region->replaced[left_replaced++] = region->replaced[i];
        left_shown += i < *shown;
        region->handles[left] = region->handles[i];
        region->outputs[left] = region->outputs[i];
        region->output_of[region->outputs[left]] = left + 1;
        left++;
    }
    region->replaced_count = left_replaced;
    *shown = left_shown;
    *count = left;
}

PyObject *dycl_replay_error(PyObject *exception) {
    PyObject *arguments = PyObject_GetAttrString(exception, "args");
    return arguments ? Py_BuildValue("(ON)", (PyObject *)Py_TYPE(exception), arguments) : NULL;
}

/* 0 or -1, before anything has changed. */
static int give_up(dycl_region *region, PyObject *exception, uint32_t *count, uint32_t *shown) {
    const dycl_graph *graph = &region->recorder.graph;
    PyObject *error = dycl_replay_error(exception);
    if (!error) return -1;
    if (!region->failure) region->failure = Py_NewRef(exception);
    leave_out(region, count, shown);
    for (PyObject *o = region->first, *next; o; o = next) {
        const dycl_lazy *lazy = dycl_lazy_of(o);
        next = lazy->next;
        if (lazy->real || lazy->epoch != region->epoch) continue;
        uint32_t root = graph->values[lazy->value].root;
        if (graph->values[root].kind == DYCL_VALUE_NODE && !region->output_of[root]) dycl_lazy_lose(o, error);
    }
    Py_DECREF(error);
    return 0;
}

static int add_version(PyObject *dict, uint32_t value, uint32_t version) {
    PyObject *word = PyLong_FromUnsignedLong(value), *number = PyLong_FromUnsignedLong(version);
    int result = word && number ? PyDict_SetItem(dict, word, number) : -1;
    Py_XDECREF(word);
    Py_XDECREF(number);
    return result;
}

/* {value: the version that its tensor shows} of what was written in place and has a history, or has none. */
static PyObject *written_versions(const dycl_region *region, int with_history) {
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict && i < region->written_count; i++) {
        dycl_written w = region->written[i];
        if (dycl_track_has(region, w.value) == with_history && add_version(dict, w.value, w.version) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

/* The same of all that has a history: torch's graph remembers the version when the value is read. */
static PyObject *history_of(const dycl_region *region) {
    PyObject *dict = PyDict_New(), *written = dict ? written_versions(region, 1) : NULL;
    for (uint32_t v = 0; written && v < region->recorder.graph.value_count; v++)
        if (region->tracked[v] && add_version(dict, v, 0) < 0) Py_CLEAR(written);
    if (!written || PyDict_Update(dict, written) < 0) Py_CLEAR(dict);
    Py_XDECREF(written);
    return dict;
}

/* {value that further results come from: what its node is called}: hooks there are on their way. */
static PyObject *names_of(dycl_region *region, uint32_t shown) {
    PyObject *all = dycl_called_names_between(region, region->outputs, shown), *dict = all ? PyDict_New() : NULL;
    for (uint32_t i = 0; dict && i < shown; i++) {
        PyObject *name = PyTuple_GET_ITEM(all, i);
        PyObject *word = name == Py_None ? NULL : PyLong_FromUnsignedLong(region->outputs[i]);
        if (name != Py_None && (!word || PyDict_SetItem(dict, word, name) < 0)) Py_CLEAR(dict);
        Py_XDECREF(word);
    }
    Py_XDECREF(all);
    return dict;
}

int dycl_replay_describe(const dycl_graph *graph, const dycl_scalar *scalars, const dycl_handle *feeds,
                         const uint32_t *outputs, uint32_t count, PyObject **out_nodes, PyObject **out_values) {
    *out_nodes = *out_values = NULL;
    uint8_t *needed = needed_values(graph, outputs, count);
    if (needed) *out_nodes = node_list(graph, needed);
    if (*out_nodes) *out_values = begin_values(graph, scalars, feeds, needed);
    dycl_free(needed);
    if (*out_values) return 0;
    Py_CLEAR(*out_nodes);
    return -1;
}

int dycl_replay_run(dycl_region *region, uint32_t *count, uint32_t *shown, int counts) {
    const dycl_graph *graph = &region->recorder.graph;
    PyObject *nodes = NULL, *values = NULL, *outputs = NULL, *tensors = NULL, *history = NULL, *names = NULL;
    PyObject *errors = PyList_New(0), *versions = NULL;
    int result = -1;
    dycl_handle *feeds = dycl_alloc((graph->feed_count + 1) * sizeof *feeds); /* borrowed */
    if (!feeds && errors) PyErr_NoMemory();
    for (uint32_t i = 0; feeds && i < graph->feed_count; i++) feeds[i] = dycl_source_handle(&region->sources[i]);
    if (feeds && errors &&
        dycl_replay_describe(graph, region->recorder.scalars, feeds, region->outputs, *count, &nodes, &values) == 0)
        outputs = dycl_replay_words((int)*count, region->outputs);
    if (outputs) history = region->tracks ? history_of(region) : Py_NewRef(Py_None);
    if (history) names = region->tracks ? names_of(region, *shown) : Py_NewRef(Py_None);
    if (names) versions = counts ? written_versions(region, 0) : Py_NewRef(Py_None);
    if (versions) tensors = call(nodes, values, outputs, history, names, errors, versions);
    if (tensors)
        result = take_handles(region, tensors, *count);
    else
        forget_frames();
    if (result == 0 && PyList_GET_SIZE(errors) &&
        (result = give_up(region, PyList_GET_ITEM(errors, 0), count, shown)) < 0)
        for (uint32_t i = 0; i < *count; i++) dycl_abi_delete(region->handles[i]);
    dycl_free(feeds);
    Py_XDECREF(errors);
    Py_XDECREF(nodes);
    Py_XDECREF(values);
    Py_XDECREF(outputs);
    Py_XDECREF(tensors);
    Py_XDECREF(history);
    Py_XDECREF(names);
    Py_XDECREF(versions);
    return result;
}
