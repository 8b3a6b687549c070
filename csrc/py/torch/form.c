#include "py/torch/form.h"

#include <string.h>

#include "base/alloc.h"
#include "ir/infer.h"
#include "py/torch/abi.h"

/* ---- Keys */

int dycl_form_key_of(const dycl_graph *graph, dycl_op op, int flags, int operand_count, const uint32_t *operands,
                     int word_count, const int64_t *words, dycl_form_key *out) {
    if (operand_count > DYCL_FORM_OPERANDS || word_count > DYCL_MAX_ATTRS) return 0;
    int64_t *at = out->words;
    *at++ = op | (int64_t)operand_count << 16 | (int64_t)word_count << 24 | (int64_t)flags << 32;
    memcpy(at, words, (size_t)word_count * sizeof *words);
    at += word_count;
    for (int i = 0; i < operand_count; i++) {
        if (operands[i] == DYCL_NONE) {
            *at++ = -1;
            continue;
        }
        const dycl_value *v = &graph->values[operands[i]];
        size_t bytes = v->rank * sizeof *v->sizes;
        *at++ = v->dtype << 8 | v->rank;
        memcpy(at, v->sizes, bytes);
        memcpy(at + v->rank, v->strides, bytes);
        at += 2 * v->rank;
    }
    out->count = (int)(at - out->words);
    return 1;
}

/* ---- The table */

typedef struct known {
    struct known *next;
    dycl_form form;
    int count;
    int64_t words[];
} known;

#define BUCKETS 4096
#define MOST    8192 /* forms: a few hundred bytes each */
static known *buckets[BUCKETS];
static int known_count;

static known **bucket_of(const dycl_form_key *key) {
    uint64_t h = 0;
    for (int i = 0; i < key->count; i++) {
        h = (h ^ (uint64_t)key->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return &buckets[h % BUCKETS];
}

dycl_form *dycl_form_find(const dycl_form_key *key) {
    for (known *k = *bucket_of(key); k; k = k->next)
        if (k->count == key->count && memcmp(k->words, key->words, (size_t)key->count * sizeof *key->words) == 0)
            return &k->form;
    return NULL;
}

static void forget_all(void) {
    for (int i = 0; i < BUCKETS; i++)
        while (buckets[i]) {
            known *k = buckets[i];
            buckets[i] = k->next;
            Py_XDECREF(k->form.type);
            dycl_free(k);
        }
    known_count = 0;
}

/* Without memory nothing is remembered. */
static void remember(const dycl_form_key *key, const dycl_form *form) {
    if (dycl_form_find(key)) return;
    if (known_count == MOST) forget_all();
    known *k = dycl_alloc(sizeof *k + (size_t)key->count * sizeof *key->words), **bucket = bucket_of(key);
    if (!k) return;
    k->form = *form;
    Py_XINCREF(form->type);
    k->count = key->count;
    memcpy(k->words, key->words, (size_t)key->count * sizeof *key->words);
    k->next = *bucket;
    *bucket = k;
    known_count++;
}

/* ---- Learning */

static int shares_memory(PyObject *o, uint64_t storage, int depth) {
    if (PyObject_TypeCheck(o, dycl_py.tensor_type)) return dycl_abi_storage(dycl_abi_impl(o)) == storage;
    if (depth == 0 || !(PyTuple_Check(o) || PyList_Check(o))) return 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
        if (shares_memory(PySequence_Fast_GET_ITEM(o, i), storage, depth - 1)) return 1;
    return 0;
}

/* A tensor as a step of ours would make it. A view of a tensor that nobody else has will be that tensor. history: what
 * is of floating point has one, as it will have here. */
static int read_result(PyObject *o, dycl_form *form, int at, int history) {
    dycl_tensor_view view;
    dycl_value v = {0};
    if (Py_TYPE(o) != dycl_py.tensor_type) return 0;
    const char *impl = dycl_abi_impl(o);
    if (!dycl_abi_is_plain(impl) || !dycl_abi_read(dycl_abi_borrow(o), &view)) return 0;
    if (dycl_abi_requires_grad(o) != (history && dycl_dtype_is_float(view.dtype))) return 0;
    if (dycl_abi_storage_offset(dycl_abi_borrow(o)) != 0) return 0;
    form->result[at].dtype = view.dtype;
    form->result[at].rank = v.rank = (uint8_t)view.rank;
    memcpy(form->result[at].sizes, view.sizes, (size_t)view.rank * sizeof *view.sizes);
    memcpy(form->result[at].strides, view.strides, (size_t)view.rank * sizeof *view.strides);
    memcpy(v.sizes, view.sizes, (size_t)view.rank * sizeof *view.sizes);
    memcpy(v.strides, view.strides, (size_t)view.rank * sizeof *view.strides);
    return dycl_value_dense(&v) && dycl_value_numel(&v) > 0;
}

typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *kwdict;
} arguments;

static int is_view(PyObject *o) {
    int state = dycl_abi_torch_function_off(); /* the program did not ask this */
    PyObject *answer = PyObject_CallMethod(o, "_is_view", NULL);
    dycl_abi_torch_function_restore(state);
    int result = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return result;
}

static int read_new(PyObject *o, dycl_form *form, int at, const arguments *a, int history) {
    PyObject *name, *value;
    Py_ssize_t place = 0;
    if (!read_result(o, form, at, history)) return 0;
    uint64_t storage = dycl_abi_storage(dycl_abi_impl(o));
    for (Py_ssize_t i = 0; i < a->count; i++)
        if (shares_memory(a->args[i], storage, 2)) return 0;
    while (a->kwdict && PyDict_Next(a->kwdict, &place, &name, &value))
        if (shares_memory(value, storage, 2)) return 0;
    uint32_t version = dycl_abi_version(dycl_abi_impl(o));
    if (at && version != form->writes) return 0;
    form->writes = version;
    form->result[at].view = is_view(o);
    return 1;
}

static int read_all(const dycl_lesson *lesson, PyObject *result, dycl_form *form, const arguments *a) {
    int history = (lesson->flags & DYCL_FORM_HISTORY) != 0;
    if (lesson->flags & DYCL_FORM_IN_PLACE) {
        form->results = 1;
        if (a->count && result == Py_None) result = a->args[0]; /* x[key] = y */
        if (!a->count || result != a->args[0] || !read_result(result, form, 0, history)) return 0;
        return lesson->flags & DYCL_FORM_INFERENCE || dycl_abi_version(dycl_abi_impl(result)) == lesson->version + 1;
    }
    if (!PyTuple_Check(result)) {
        form->results = 1;
        return read_new(result, form, 0, a, history);
    }
    form->type = (PyObject *)Py_TYPE(result);
    form->results = (int)PyTuple_GET_SIZE(result);
    if (PyTuple_GET_SIZE(result) > DYCL_HOSTED_RESULTS) return 0;
    for (int i = 0; i < form->results; i++)
        if (!read_new(PyTuple_GET_ITEM(result, i), form, i, a, history)) return 0;
    return 1;
}

void dycl_lesson_begin(dycl_lesson *lesson, PyObject *const *args, Py_ssize_t count) {
    if (lesson && lesson->flags & DYCL_FORM_IN_PLACE && count && PyObject_TypeCheck(args[0], dycl_py.tensor_type))
        lesson->version = dycl_abi_version(dycl_abi_impl(args[0]));
}

void dycl_lesson_end(dycl_lesson *lesson, PyObject *result, PyObject *const *args, Py_ssize_t count, PyObject *kwdict) {
    dycl_form form = {0};
    arguments a = {args, count, kwdict};
    if (!lesson) return;
    if (result) {
        if (!read_all(lesson, result, &form, &a)) form.results = 0;
        remember(&lesson->key, &form);
    }
    dycl_free(lesson);
}
