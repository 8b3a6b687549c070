#include "py/memory/constant.h"

#include "exec/pack/feed.h"
#include "py/memory/owners.h"

#include <string.h>

typedef struct {
    PyObject *object; /* borrowed: valid while `weak` is alive */
    PyObject *weak;   /* owned */
    uint64_t token;   /* 0: not constant at present */
    uint64_t storage;
    uint16_t retry_after; /* calls until its storage is looked at again */
    uint8_t lost;         /* a raw pointer or a NumPy array got out: never constant again */
} constant;

#define RETRY_CALLS 64

static constant *table; /* open addressing by the object's address; object NULL: free */
static size_t table_room, table_count;
static uint64_t next_token = 1;
static PyObject *forget_function; /* owned: callback of the weak references */
static int watched;               /* every way to write them that torch does not count */

static size_t home(const PyObject *object, size_t room) {
    return (size_t)(((uint64_t)(uintptr_t)object * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (room - 1);
}

static constant *find(const PyObject *object) {
    if (!table_room) return NULL;
    for (size_t at = home(object, table_room); table[at].object; at = (at + 1) & (table_room - 1))
        if (table[at].object == object) return &table[at];
    return NULL;
}

static void take_out(constant *entry) {
    size_t hole = (size_t)(entry - table);
    PyObject *weak = entry->weak;
    if (entry->token) dycl_pack_forget(entry->token);
    table[hole].object = NULL;
    table_count--;
    for (size_t at = (hole + 1) & (table_room - 1); table[at].object;
         at = (at + 1) & (table_room - 1)) { /* close the gap */
        size_t wanted = home(table[at].object, table_room);
        if (((at - wanted) & (table_room - 1)) < ((at - hole) & (table_room - 1))) continue;
        table[hole] = table[at];
        table[at].object = NULL;
        hole = at;
    }
    Py_DECREF(weak);
}

static PyObject *forget(PyObject *self, PyObject *weak) {
    (void)self;
    for (size_t i = 0; i < table_room; i++) {
        if (!table[i].object || table[i].weak != weak) continue;
        take_out(&table[i]);
        break;
    }
    Py_RETURN_NONE;
}

static PyMethodDef forget_method = {"forget", forget, METH_O, NULL};

static int grow(void) {
    size_t room = table_room ? 2 * table_room : 256;
    constant *next = PyMem_Calloc(room, sizeof *next);
    if (!next) return -1;
    for (size_t i = 0; i < table_room; i++) {
        if (!table[i].object) continue;
        size_t at = home(table[i].object, room);
        while (next[at].object) at = (at + 1) & (room - 1);
        next[at] = table[i];
    }
    PyMem_Free(table);
    table = next;
    table_room = room;
    return 0;
}

static uint64_t make(PyObject *parameter, uint64_t storage) {
    if (!watched) return 0; /* an unknown torch: nothing is constant */
    if (2 * (table_count + 1) > table_room && grow() < 0) return 0;
    PyObject *weak = PyWeakref_NewRef(parameter, forget_function);
    if (!weak) {
        PyErr_Clear();
        return 0;
    }
    uint64_t token = dycl_owners_none(parameter) ? next_token++ : 0;
    size_t at = home(parameter, table_room);
    while (table[at].object) at = (at + 1) & (table_room - 1);
    table[at] = (constant){parameter, weak, token, storage, RETRY_CALLS, 0};
    table_count++;
    return token;
}

uint64_t dycl_constant_token(PyObject *parameter, uint64_t *out_version) {
    const char *impl = dycl_abi_impl(parameter);
    uint64_t storage = dycl_abi_storage(impl);
    if (dycl_abi_is_inference(impl)) return 0; /* has no version */
    *out_version = dycl_abi_version(impl);
    constant *entry = find(parameter);
    if (entry && entry->storage != storage) { /* parameter.data = another tensor */
        take_out(entry);
        entry = NULL;
    }
    if (!entry) return make(parameter, storage);
    if (!entry->token && !entry->lost && entry->retry_after-- == 0) {
        entry->retry_after = RETRY_CALLS;
        if (dycl_owners_none(parameter)) entry->token = next_token++;
    }
    return entry->token;
}

/* ---- What hooks tell (py/intercept/uncounted.c) */

void dycl_constant_expose(PyObject *self, int for_good) {
    if (!table_count || !PyObject_TypeCheck(self, dycl_py.tensor_type)) return;
    uint64_t storage = dycl_abi_storage(dycl_abi_impl(self));
    for (size_t i = 0; i < table_room; i++) { /* rare: nobody does this in a hot loop while constants are held */
        if (!table[i].object || table[i].storage != storage) continue;
        if (table[i].token) dycl_pack_forget(table[i].token);
        table[i].token = 0;
        table[i].lost |= (uint8_t)for_good;
        table[i].retry_after = RETRY_CALLS;
    }
}

void dycl_constant_renew(PyObject *self) {
    if (!table_count || !PyObject_TypeCheck(self, dycl_py.tensor_type)) return;
    uint64_t storage = dycl_abi_storage(dycl_abi_impl(self));
    for (size_t i = 0; i < table_room; i++) {
        if (!table[i].object || table[i].storage != storage || !table[i].token) continue;
        dycl_pack_forget(table[i].token);
        table[i].token = next_token++;
    }
}

PyObject *dycl_constant_reference(const PyObject *object) {
    const constant *entry = find(object);
    return entry ? entry->weak : NULL;
}

int dycl_constant_setup(int writes_are_seen) {
    watched = writes_are_seen;
    forget_function = PyCFunction_New(&forget_method, NULL);
    return forget_function ? 0 : -1;
}
