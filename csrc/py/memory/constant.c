#include "py/memory/constant.h"

#include <string.h>

#include "exec/plan/plan.h"
#include "py/region/region.h"
#include "py/torch/wrap.h"

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
static PyObject *storage_use_count, *untyped_storage_name, *cdata_name, *is_shared_name; /* owned */
static int doors_watched;
static int opening; /* our own use of untyped_storage() */

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

/* Who holds a tensor's storage: tensors and storage objects (uses), and holders of the storage object (references). */
typedef struct {
    long uses;
    Py_ssize_t references;
    int shared; /* with other processes; unknown counts as shared */
} owners;

static owners alone; /* of a tensor that nobody shares anything with: measured, as it depends on how torch keeps storage
                        objects */

static owners count_owners(PyObject *tensor) {
    int state = dycl_abi_torch_function_off();
    opening = 1;
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, untyped_storage_name);
    opening = 0;
    PyObject *address = storage ? PyObject_GetAttr(storage, cdata_name) : NULL;
    PyObject *count = address ? PyObject_CallOneArg(storage_use_count, address) : NULL;
    owners found = {count ? PyLong_AsLong(count) : -1, storage ? Py_REFCNT(storage) : -1, 1};
    PyObject *shared = storage ? PyObject_CallMethodNoArgs(storage, is_shared_name) : NULL;
    found.shared = shared != Py_False;
    Py_XDECREF(shared);
    Py_XDECREF(count);
    Py_XDECREF(address);
    Py_XDECREF(storage);
    PyErr_Clear();
    dycl_abi_torch_function_restore(state);
    return found;
}

/* No alias that could be written without our seeing it: memory that other processes see has many. */
static int owns_storage(PyObject *parameter) {
    owners found = count_owners(parameter);
    return found.uses == alone.uses && found.references == alone.references && !found.shared;
}

static void watch_doors(void);

static uint64_t make(PyObject *parameter, uint64_t storage) {
    if (doors_watched == 0) watch_doors();
    if (doors_watched < 0) return 0;
    if (2 * (table_count + 1) > table_room && grow() < 0) return 0;
    PyObject *weak = PyWeakref_NewRef(parameter, forget_function);
    if (!weak) {
        PyErr_Clear();
        return 0;
    }
    uint64_t token = owns_storage(parameter) ? next_token++ : 0;
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
        if (owns_storage(parameter)) entry->token = next_token++;
    }
    return entry->token;
}

/* ---- The doors to memory that torch does not count writes through
 * Their C functions (in PyGetSetDef and PyMethodDef) are wrapped once, when the first parameter becomes a constant: a
 * few nanoseconds a call, and nothing that Python or torch.compile can see changes. */

void dycl_constant_expose(PyObject *self, int for_good) {
    if (opening || !table_count || !PyObject_TypeCheck(self, dycl_py.tensor_type)) return;
    uint64_t storage = dycl_abi_storage(dycl_abi_impl(self));
    for (size_t i = 0; i < table_room;
         i++) { /* rare: nobody opens these doors in a hot loop while constants are held */
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

static getter original_data;
static setter original_set_data;
static PyCFunction original_data_ptr, original_untyped_storage;
static PyCFunctionWithKeywords original_numpy;

/* What waits to be made of a constant is made before its memory can be written. 0 or -1. */
static int make_postponed(void) {
    dycl_region *region = dycl_region_current;
    return region && region->postponed && !opening ? dycl_region_flush(region, DYCL_BAIL_alias) : 0;
}

static int open_door(PyObject *self, int for_good) {
    if (make_postponed() < 0) return -1;
    dycl_constant_expose(self, for_good);
    return 0;
}

static PyObject *door_data(PyObject *self, void *closure) {
    if (open_door(self, 0) < 0) return NULL;
    return original_data(self, closure);
}

/* a.data = b: b's memory under a's version. */
static int door_set_data(PyObject *self, PyObject *value, void *closure) {
    if (value && PyObject_TypeCheck(value, dycl_py.tensor_type) && open_door(value, 0) < 0) return -1;
    return original_set_data(self, value, closure);
}

static PyObject *door_untyped_storage(PyObject *self, PyObject *unused) {
    if (open_door(self, 0) < 0) return NULL;
    return original_untyped_storage(self, unused);
}

static PyObject *door_data_ptr(PyObject *self, PyObject *unused) { /* a raw pointer may live for ever */
    if (open_door(self, 1) < 0) return NULL;
    return original_data_ptr(self, unused);
}

static PyObject *door_numpy(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (open_door(self, 1) < 0) return NULL;
    return original_numpy(self, args, kwargs);
}

/* ---- Operators of torch that write without counting */

static PyCFunction original_apply;
static PyCFunctionWithKeywords original_map, original_map2, original_fused[5];

/* These call a function of the program for each element, which may do anything meanwhile: what they write is no
 * constant for a while. */
static PyObject *door_apply(PyObject *self, PyObject *function) {
    if (open_door(self, 0) < 0) return NULL;
    return original_apply(self, function);
}

static PyObject *door_map(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (open_door(self, 0) < 0) return NULL;
    return original_map(self, args, kwargs);
}

static PyObject *door_map2(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (open_door(self, 0) < 0) return NULL;
    return original_map2(self, args, kwargs);
}

/* fused(list of what is written, ...) */
static PyObject *fused(PyCFunctionWithKeywords original, PyObject *self, PyObject *args, PyObject *kwargs) {
    if (make_postponed() < 0) return NULL;
    PyObject *result = original(self, args, kwargs), *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *list = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0)
                     : kwargs               ? PyDict_GetItemString(kwargs, "self")
                                            : NULL;
    for (Py_ssize_t i = 0; list && (PyList_Check(list) || PyTuple_Check(list)) && i < PySequence_Fast_GET_SIZE(list);
         i++)
        dycl_constant_renew(PySequence_Fast_GET_ITEM(list, i));
    PyErr_Restore(type, value, traceback);
    return result;
}

#define FUSED_DOOR(n)                                                                                                  \
    static PyObject *door_fused##n(PyObject *self, PyObject *args, PyObject *kwargs) {                                 \
        return fused(original_fused[n], self, args, kwargs);                                                           \
    }
FUSED_DOOR(0)
FUSED_DOOR(1)
FUSED_DOOR(2)
FUSED_DOOR(3)
FUSED_DOOR(4)

static void watch_writers(void) {
    static const struct {
        const char *name;
        PyCFunctionWithKeywords door;
    } functions[5] = {{"_VariableFunctions._fused_adam_", door_fused0},
                      {"_VariableFunctions._fused_adamw_", door_fused1},
                      {"_VariableFunctions._fused_sgd_", door_fused2},
                      {"_VariableFunctions._fused_adagrad_", door_fused3},
                      {"_VariableFunctions._amp_foreach_non_finite_check_and_unscale_", door_fused4}};
    int keywords = METH_VARARGS | METH_KEYWORDS;
    for (int i = 0; i < 5; i++)
        original_fused[i] = DYCL_AS_KEYWORDS(
            dycl_wrap_function(functions[i].name, METH_STATIC | keywords, DYCL_AS_FUNCTION(functions[i].door)));
    original_apply = dycl_wrap_method("apply_", METH_O, door_apply);
    original_map = DYCL_AS_KEYWORDS(dycl_wrap_method("map_", keywords, DYCL_AS_FUNCTION(door_map)));
    original_map2 = DYCL_AS_KEYWORDS(dycl_wrap_method("map2_", keywords, DYCL_AS_FUNCTION(door_map2)));
}

/* ---- Our weak references are nobody's business: torch.utils.swap_tensors refuses tensors that have any */

static PyCFunction original_weak_references, original_weak_reference_count;

static PyObject *foreign_references(PyObject *self, PyObject *object) {
    PyObject *all = original_weak_references(self, object);
    const constant *entry = all && PyList_Check(all) ? find(object) : NULL;
    for (Py_ssize_t i = entry ? PyList_GET_SIZE(all) : 0; i-- > 0;) {
        if (PyList_GET_ITEM(all, i) != entry->weak) continue;
        if (PyList_SetSlice(all, i, i + 1, NULL) < 0) Py_CLEAR(all);
        break;
    }
    return all;
}

static PyObject *foreign_reference_count(PyObject *self, PyObject *object) {
    PyObject *count = original_weak_reference_count(self, object);
    if (!count || !find(object)) return count;
    long n = PyLong_AsLong(count);
    Py_DECREF(count);
    return PyLong_FromLong(n - 1);
}

static void hide_references(void) {
    PyObject *module = PyImport_ImportModule("_weakref");
    PyObject *references = module ? PyObject_GetAttrString(module, "getweakrefs") : NULL,
             *count = module ? PyObject_GetAttrString(module, "getweakrefcount") : NULL;
    original_weak_references = dycl_wrap_builtin(references, METH_O, foreign_references);
    original_weak_reference_count = dycl_wrap_builtin(count, METH_O, foreign_reference_count);
    Py_XDECREF(references);
    Py_XDECREF(count);
    Py_XDECREF(module);
    PyErr_Clear();
}

static PyMethodDef *method_def(const char *name, int flags) {
    PyObject *method = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, name); /* of torch._C.TensorBase */
    if (!method || Py_TYPE(method) != &PyMethodDescr_Type) return NULL;
    PyMethodDef *def = ((PyMethodDescrObject *)method)->d_method;
    return def->ml_flags == flags ? def : NULL;
}

static void watch_doors(void) {
    PyObject *data = PyDict_GetItemString(dycl_py.tensor_type->tp_base->tp_dict, "data");
    PyGetSetDef *data_def =
        data && Py_TYPE(data) == &PyGetSetDescr_Type ? ((PyGetSetDescrObject *)data)->d_getset : NULL;
    PyMethodDef *pointer = method_def("data_ptr", METH_NOARGS), *storage = method_def("untyped_storage", METH_NOARGS),
                *numpy = method_def("numpy", METH_VARARGS | METH_KEYWORDS);
    doors_watched = -1;
    if (!data_def || !data_def->set || !pointer || !storage || !numpy)
        return; /* an unknown torch: nothing is constant */
    original_data = data_def->get;
    original_data_ptr = pointer->ml_meth;
    original_untyped_storage = storage->ml_meth;
    original_numpy = (PyCFunctionWithKeywords)(void (*)(void))numpy->ml_meth;
    original_set_data = data_def->set;
    data_def->get = door_data;
    data_def->set = door_set_data;
    pointer->ml_meth = door_data_ptr;
    storage->ml_meth = door_untyped_storage;
    numpy->ml_meth = (PyCFunction)(void (*)(void))door_numpy;
    watch_writers();
    hide_references();
    doors_watched = 1;
}

int dycl_constant_setup(void) {
    PyObject *c = PyObject_GetAttrString(dycl_py.torch, "_C");
    storage_use_count = c ? PyObject_GetAttrString(c, "_storage_Use_Count") : NULL;
    Py_XDECREF(c);
    untyped_storage_name = PyUnicode_InternFromString("untyped_storage");
    cdata_name = PyUnicode_InternFromString("_cdata");
    is_shared_name = PyUnicode_InternFromString("is_shared");
    forget_function = PyCFunction_New(&forget_method, NULL);
    if (!storage_use_count || !untyped_storage_name || !cdata_name || !is_shared_name || !forget_function) return -1;
    PyObject *sample = PyObject_CallMethod(dycl_py.torch, "empty", "i", 1);
    if (!sample) return -1;
    alone = count_owners(sample);
    owners again = count_owners(sample);
    Py_DECREF(sample);
    if (alone.uses < 1 || again.uses != alone.uses || again.references != alone.references)
        alone.uses = -2; /* nothing counts as constant then */
    return 0;
}
