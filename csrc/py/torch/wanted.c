#include "py/torch/wanted.h"

#include "py/torch/places.h"

/* C++ std::unordered_map<Node *, ExecInfo> of libstdc++; GraphTask::ExecInfo is a bool and a pointer, and one of them
 * is set where the node will run. */
typedef struct entry {
    struct entry *next;
    const void *node;
    uint8_t needed;
    void *captures;
} entry;
typedef struct {
    entry **buckets; /* the one before the first of the bucket */
    size_t bucket_count;
    entry *first;
    size_t count;
} node_table;

static PyObject *will_execute, *function_base; /* owned: torch._C._will_engine_execute_node, _FunctionBase, or NULL */
static PyObject *next_functions_name;          /* owned: interned */
static enum { UNTRIED, READ, ASKED } table_state; /* whether the table is read, or torch's function asked */

static const node_table *table(void) {
    return dycl_abi_torch.executed ? (const node_table *)dycl_abi_torch.executed() : NULL;
}

int dycl_wanted_all(void) {
    const node_table *t = will_execute ? table() : NULL;
    return !t || !t->count;
}

static int is_in(const node_table *t, const void *node) {
    size_t bucket = (uintptr_t)node % t->bucket_count;
    const entry *e = t->buckets[bucket];
    for (e = e ? e->next : NULL; e && (uintptr_t)e->node % t->bucket_count == bucket; e = e->next)
        if (e->node == node) return e->needed || e->captures;
    return 0;
}

/* The C++ node of an object of torch's own nodes; NULL: of another one. */
static const void *node_of(PyObject *o) {
    if (!function_base || PyObject_IsInstance(o, function_base)) return NULL;
    return pointer_at((const char *)o, sizeof(PyObject));
}

/* Of a leaf that is asked for torch's function answers with an error. */
static int ask(PyObject *o) {
    PyObject *answer = PyObject_CallOneArg(will_execute, o);
    int result = answer ? answer == Py_True : PyErr_ExceptionMatches(PyExc_RuntimeError) ? 1 : -1;
    if (!answer && result > 0) PyErr_Clear();
    Py_XDECREF(answer);
    return result;
}

static int is_wanted(PyObject *o) {
    const void *node = o == Py_None || table_state == ASKED ? NULL : node_of(o);
    if (o == Py_None) return 0;
    if (node && table_state == READ) return is_in(table(), node);
    int asked = ask(o);
    if (node && asked >= 0) table_state = is_in(table(), node) == asked ? READ : ASKED;
    return asked;
}

PyObject *dycl_wanted_of(PyObject *node) {
    PyObject *next = PyObject_GetAttr(node, next_functions_name); /* ((node, which of its inputs), ...) */
    Py_ssize_t count = next ? PyTuple_Size(next) : -1;
    PyObject *wanted = count >= 0 ? PyTuple_New(count) : NULL;
    for (Py_ssize_t i = 0; wanted && i < count; i++) {
        int is = is_wanted(PyTuple_GET_ITEM(PyTuple_GET_ITEM(next, i), 0));
        if (is < 0)
            Py_CLEAR(wanted);
        else
            PyTuple_SET_ITEM(wanted, i, Py_NewRef(is ? Py_True : Py_False));
    }
    Py_XDECREF(next);
    return wanted;
}

int dycl_wanted_setup(void) {
    PyObject *c = PyObject_GetAttrString(dycl_py.torch, "_C");
    will_execute = c ? PyObject_GetAttrString(c, "_will_engine_execute_node") : NULL;
    function_base = c ? PyObject_GetAttrString(c, "_FunctionBase") : NULL;
    Py_XDECREF(c);
    PyErr_Clear(); /* not in this torch: all is wanted */
    next_functions_name = PyUnicode_InternFromString("next_functions");
    return next_functions_name ? 0 : -1;
}
