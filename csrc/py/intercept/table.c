#include "py/intercept/table.h"

#include "py/intercept/shortcut.h"

typedef struct {
    PyObject *callable; /* owned */
    const dycl_binding *row;
    int in_place, swapped;
} dycl_bound;

static dycl_bound *table;
static size_t table_room, table_count;

static size_t bucket(const PyObject *callable, size_t room) {
    return (size_t)(((uint64_t)(uintptr_t)callable * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (room - 1);
}

const dycl_binding *dycl_binding_find(PyObject *callable, int *out_in_place, int *out_swapped) {
    for (size_t at = bucket(callable, table_room); table[at].callable; at = (at + 1) & (table_room - 1)) {
        if (table[at].callable != callable) continue;
        *out_in_place = table[at].in_place;
        *out_swapped = table[at].swapped;
        return table[at].row;
    }
    return NULL;
}

int dycl_binding_insert(PyObject *callable, const dycl_binding *row, int in_place, int swapped) {
    if (2 * (table_count + 1) > table_room) {
        size_t room = table_room ? 2 * table_room : 1024;
        dycl_bound *next = PyMem_Calloc(room, sizeof *next);
        if (!next) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t i = 0; i < table_room; i++) {
            if (!table[i].callable) continue;
            size_t at = bucket(table[i].callable, room);
            while (next[at].callable) at = (at + 1) & (room - 1);
            next[at] = table[i];
        }
        PyMem_Free(table);
        table = next;
        table_room = room;
    }
    size_t at = bucket(callable, table_room);
    while (table[at].callable) {
        if (table[at].callable == callable)
            return 0; /* torch exports some callables under several names: the first row serves */
        at = (at + 1) & (table_room - 1);
    }
    table[at] = (dycl_bound){Py_NewRef(callable), row, in_place, swapped};
    table_count++;
    dycl_shortcut_install(callable);
    return 0;
}

int dycl_bindings_add(PyObject *callable, const dycl_binding *row, int in_place, const char *method) {
    int other_in_place, swapped;
    if (dycl_binding_find(callable, &other_in_place, &swapped)) return 0;
    int result = dycl_binding_insert(callable, row, in_place, 0);
    return result == 0 && method ? dycl_binding_add_method(method, callable, row, in_place, 0) : result;
}
