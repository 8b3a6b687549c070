#include "py/memory/foreign.h"

#include "py/memory/owners.h"
#include "py/torch/wrap.h"

typedef struct {
    uint64_t storage; /* address of the StorageImpl, of which we own a weak reference; 0: free */
    uint8_t why;      /* dycl_foreign */
} noted;

#define LEAST 64 /* places */

static noted *table; /* open addressing */
static size_t table_room, table_count;
static PyObject *storage_type, *take_name, *expired_name, *release_name, *address_name; /* owned */

static noted *find(noted *in, size_t room, uint64_t storage) { /* its entry, or the free one where it belongs */
    size_t at = (size_t)((storage * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (room - 1);
    while (in[at].storage && in[at].storage != storage) at = (at + 1) & (room - 1);
    return &in[at];
}

static int ask(PyObject *name, uint64_t storage, PyObject **out_answer) {
    PyObject *address = PyLong_FromUnsignedLongLong(storage);
    *out_answer = address ? PyObject_CallMethodOneArg(storage_type, name, address) : NULL;
    Py_XDECREF(address);
    return *out_answer ? 0 : -1;
}

static int is_gone(uint64_t storage) {
    PyObject *answer;
    int gone = ask(expired_name, storage, &answer) == 0 && answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return gone;
}

static void release(uint64_t storage) {
    PyObject *answer;
    ask(release_name, storage, &answer);
    Py_XDECREF(answer);
    PyErr_Clear();
}

/* Those that died leave; the rest gets a table that is at most a quarter full. 0 or -1. */
static int sweep(void) {
    size_t alive = 0, room = LEAST;
    for (size_t i = 0; i < table_room; i++) {
        if (!table[i].storage) continue;
        if (is_gone(table[i].storage)) table[i].why = DYCL_FOREIGN_NOT;
        alive += table[i].why != DYCL_FOREIGN_NOT;
    }
    while (room < 4 * (alive + 1)) room *= 2;
    noted *next = PyMem_Calloc(room, sizeof *next);
    if (!next) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < table_room; i++) {
        if (!table[i].storage) continue;
        if (table[i].why != DYCL_FOREIGN_NOT)
            *find(next, room, table[i].storage) = table[i];
        else
            release(table[i].storage);
    }
    PyMem_Free(table);
    table = next;
    table_room = room;
    table_count = alive;
    return 0;
}

/* object: the storage at this address, or NULL with an exception. Takes the reference. */
static int note(PyObject *object, uint64_t storage, dycl_foreign why) {
    PyObject *address = object ? PyObject_CallMethodNoArgs(object, take_name) : NULL; /* a new weak reference */
    int right = address && PyLong_AsUnsignedLongLong(address) == storage;
    if (address && !right && !PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "dycl: a storage has two addresses");
    Py_XDECREF(address);
    Py_XDECREF(object);
    if (!right) return -1;
    *find(table, table_room, storage) = (noted){storage, (uint8_t)why};
    table_count++;
    return 0;
}

/* 1: it is noted already; 0: there is a place for it; -1 with an exception. */
static int raise(uint64_t storage, dycl_foreign why) {
    if (2 * (table_count + 1) > table_room && sweep() < 0) return -1;
    noted *entry = find(table, table_room, storage);
    if (!entry->storage) return 0;
    if (why > entry->why) entry->why = (uint8_t)why;
    return 1;
}

int dycl_foreign_note(PyObject *tensor, dycl_foreign why) {
    const char *impl = dycl_abi_impl(tensor);
    uint64_t storage = dycl_abi_storage(impl);
    if (!storage || dycl_abi_storage_foreign(impl)) return 0; /* for good */
    int known = raise(storage, why);
    return known ? known < 0 ? -1 : 0 : note(dycl_owners_storage(tensor), storage, why);
}

int dycl_foreign_note_storage(PyObject *storage, dycl_foreign why) {
    PyObject *word = PyObject_GetAttr(storage, address_name);
    uint64_t address = word ? PyLong_AsUnsignedLongLong(word) : 0;
    Py_XDECREF(word);
    if (PyErr_Occurred()) return -1;
    int known = raise(address, why);
    return known ? known < 0 ? -1 : 0 : note(Py_NewRef(storage), address, why);
}

int dycl_foreign_is(const char *impl, PyObject *tensor) {
    if (dycl_abi_storage_foreign(impl)) return 1;
    if (!table_count) return 0;
    noted *entry = find(table, table_room, dycl_abi_storage(impl));
    if (!entry->storage || entry->why == DYCL_FOREIGN_NOT) return 0;
    if (entry->why == DYCL_FOREIGN_POINTED && tensor && Py_TYPE(tensor) == dycl_py.parameter_type) return 0;
    if (entry->why == DYCL_FOREIGN_HELD && tensor && !dycl_owners_hold_storage(tensor))
        entry->why = DYCL_FOREIGN_NOT; /* stays until the next sweep */
    return entry->why != DYCL_FOREIGN_NOT;
}

int dycl_foreign_setup(void) {
    PyObject **names[] = {&take_name, &expired_name, &release_name, &address_name};
    static const char *const texts[] = {"_weak_ref", "_expired", "_free_weak_ref", "_cdata"};
    if (!(storage_type = PyObject_GetAttrString(dycl_py.torch, "UntypedStorage"))) return -1;
    for (int i = 0; i < 4; i++) {
        if (!(*names[i] = PyUnicode_InternFromString(texts[i]))) return -1;
        if (!PyObject_HasAttr(storage_type, *names[i])) return dycl_torch_lacks(texts[i]);
    }
    return 0;
}
