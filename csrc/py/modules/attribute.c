#include "py/modules/attribute.h"

#include "py/cpython/dict.h"
#include "py/cpython/trace.h"
#include "py/modules/class.h"
#include "py/region/region.h"

#define TABLES 3

static getattrofunc plain; /* nn.Module's slot */
static const char *const table_texts[TABLES] = {"_parameters", "_buffers",
                                                "_modules"}; /* in the order in which Module.__getattr__ asks */
static PyObject *table_names[TABLES];                        /* owned: interned */

/* ---- What was found in a table */

typedef struct {
    PyObject *name;  /* owned: the key, together with dict_version, which no other object's dict ever has */
    PyObject *found; /* borrowed: a table has it */
    PyObject *tables[TABLES];
    uint64_t versions[TABLES], dict_version;
    unsigned type_version;
} row;

#define ROW_BITS 12
static row rows[1 << ROW_BITS];

static row *row_of(PyObject *self, PyObject *name) {
    uintptr_t both = (uintptr_t)self ^ (uintptr_t)name * UINT64_C(0xbf58476d1ce4e5b9);
    return &rows[dycl_address_hash((const void *)both, ROW_BITS)];
}

/* Borrowed; NULL: it has to be looked for. The tables are still there where the __dict__ is as it was. */
static PyObject *known(PyObject *self, PyObject *name) {
    const row *r = row_of(self, name);
    if (r->name != name || r->type_version != dycl_type_version(Py_TYPE(self))) return NULL;
    PyObject *dict = dycl_object_dict(self);
    if (!dict || r->dict_version != dycl_dict_version(dict)) return NULL;
    for (int i = 0; i < TABLES; i++)
        if (r->versions[i] != dycl_dict_version(r->tables[i])) return NULL;
    return r->found;
}

static void remember(PyObject *self, PyObject *name, PyObject *dict, PyObject *const *tables, PyObject *found) {
    row *r = row_of(self, name);
    unsigned type_version = dycl_type_version(Py_TYPE(self));
    if (!type_version) return;
    Py_XSETREF(r->name, Py_NewRef(name));
    r->found = found;
    r->type_version = type_version;
    r->dict_version = dycl_dict_version(dict);
    for (int i = 0; i < TABLES; i++) {
        r->tables[i] = tables[i];
        r->versions[i] = dycl_dict_version(tables[i]);
    }
}

void dycl_attribute_forget(void) {
    for (int i = 0; i < 1 << ROW_BITS; i++) Py_CLEAR(rows[i].name);
}

/* ---- Looking for it */

/* New reference; NULL without an exception where the ordinary way has to be taken. */
static PyObject *find_in_tables(PyObject *self, PyObject *name, PyObject *dict) {
    PyObject *tables[TABLES], *found = NULL;
    int all = 1;
    for (int i = 0; i < TABLES; i++) {
        tables[i] = PyDict_GetItemWithError(dict, table_names[i]);
        if (!tables[i] && PyErr_Occurred()) return NULL;
        all &= tables[i] && PyDict_CheckExact(tables[i]);
    }
    for (int i = 0; i < TABLES && !found; i++) {
        if (!tables[i]) continue;
        if (!PyDict_CheckExact(tables[i])) return NULL;
        if (!(found = PyDict_GetItemWithError(tables[i], name)) && PyErr_Occurred()) return NULL;
    }
    if (found && all) remember(self, name, dict, tables, found);
    return Py_XNewRef(found); /* NULL: torch's own error */
}

static PyObject *find(PyObject *self, PyObject *name) {
    PyTypeObject *type = Py_TYPE(self);
    if (!PyUnicode_CheckExact(name) || !dycl_module_class_of(type)->attributes) return NULL;
    PyObject *dict = dycl_object_dict(self), *descriptor = dycl_type_lookup(type, name), *found;
    if (!dict || (descriptor && Py_TYPE(descriptor)->tp_descr_set)) return NULL;
    if ((found = PyDict_GetItemWithError(dict, name)) || PyErr_Occurred()) return Py_XNewRef(found);
    if (descriptor) {
        if (PyFunction_Check(descriptor)) return PyMethod_New(descriptor, self);
        return Py_TYPE(descriptor)->tp_descr_get ? NULL : Py_NewRef(descriptor);
    }
    return dycl_traced() ? NULL : find_in_tables(self, name, dict);
}

PyObject *dycl_attribute_get(PyObject *self, PyObject *name) {
    if (dycl_region_current) {
        PyObject *found = known(self, name);
        if (found && !dycl_traced()) return Py_NewRef(found);
        found = find(self, name);
        if (found || PyErr_Occurred()) return found;
    }
    return plain(self, name);
}

/* ---- Adoption */

void dycl_attribute_adopt(PyTypeObject *type) {
    if (type->tp_getattro != plain) return;
    type->tp_getattro = dycl_attribute_get;
    dycl_type_changed(type);
}

void dycl_attribute_replace(PyTypeObject *type, getattrofunc replacement) {
    if (type->tp_getattro != plain && type->tp_getattro != dycl_attribute_get) return;
    type->tp_getattro = replacement;
    dycl_type_changed(type);
}

int dycl_attribute_setup(void) {
    plain = dycl_py.module_type->tp_getattro;
    for (int i = 0; i < TABLES; i++)
        if (!(table_names[i] = PyUnicode_InternFromString(table_texts[i]))) return -1;
    return 0;
}
