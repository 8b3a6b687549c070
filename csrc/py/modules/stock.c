#include "py/modules/stock.h"

#include <string.h>

#include "py/bind/call.h"
#include "py/cpython/collect.h"
#include "py/cpython/trace.h"
#include "py/cpython/type.h"
#include "py/modules/attribute.h"
#include "py/modules/class.h"
#include "py/modules/composite.h"
#include "py/modules/stock_kinds.h"
#include "py/region/called.h"
#include "py/region/track.h"

static dycl_stock_config configs[DYCL_INSTANCES];
#define KIND_PLACES 128 /* a power of two, well above the number of kinds */
_Static_assert(KIND_PLACES > 2 * DYCL_STOCK_COUNT && DYCL_STOCK_COUNT < 255, "the table of kinds is too small");
static uint8_t kinds[KIND_PLACES]; /* by the type's address: 1 + its kind */
static ternaryfunc original;       /* nn.Module's slot: the same for every stock class */
static PyObject *call_attribute;   /* owned: nn.Module's own __call__ */

/* ---- What its forward calls by name, and a program may have replaced: functions of torch.nn.functional and torch, and
 * methods of the class or of the module */

static PyObject *holders[2];     /* borrowed: the dicts of torch.nn.functional and of torch, which stay */
static uint64_t holders_seen[2]; /* their versions when they were looked at */
static PyObject *own[DYCL_STOCK_COUNT][2], *own_parts[DYCL_STOCK_COUNT][2]; /* owned: torch's; NULL: there is none */
static uint8_t replaced[DYCL_STOCK_COUNT];
/* How a forward names those modules: borrowed, its module's dict, and owned, what it found there. */
static const char *const module_names[2] = {"F", "torch"};
static PyObject *globals[DYCL_STOCK_COUNT], *own_modules[DYCL_STOCK_COUNT][2];
static uint64_t globals_seen[DYCL_STOCK_COUNT];
static uint8_t renamed[DYCL_STOCK_COUNT];
static const char *const parts[2] = {"_conv_forward", "_check_input_dim"};

/* Where a program gives torch's own function another body, no dict tells. */
#define MOST_BODIES 4
static struct {
    PyObject *function, *code; /* borrowed: what torch defines, kept elsewhere; owned */
} bodies[DYCL_STOCK_COUNT][MOST_BODIES];

static PyObject *part_of(const dycl_stock *kind, int i) {
    PyObject *part = PyObject_GetAttrString((PyObject *)kind->type, parts[i]);
    PyErr_Clear();
    return part;
}

static int function_replaced(const dycl_stock *kind) {
    uint64_t now[2] = {dycl_dict_version(holders[0]), dycl_dict_version(holders[1])};
    if (__builtin_expect(now[0] != holders_seen[0] || now[1] != holders_seen[1], 0)) {
        for (int i = 0; i < DYCL_STOCK_COUNT; i++) {
            replaced[i] = 0;
            for (int h = 0; h < 2 && dycl_stocks[i].function; h++)
                replaced[i] |= PyDict_GetItemString(holders[h], dycl_stocks[i].function) != own[i][h];
        }
        memcpy(holders_seen, now, sizeof now);
    }
    return replaced[kind - dycl_stocks];
}

static int module_replaced(const dycl_stock *kind) {
    int at = (int)(kind - dycl_stocks);
    uint64_t now = globals[at] ? dycl_dict_version(globals[at]) : 0;
    if (__builtin_expect(now != globals_seen[at], 0)) {
        renamed[at] = 0;
        for (int i = 0; i < 2; i++)
            renamed[at] |= PyDict_GetItemString(globals[at], module_names[i]) != own_modules[at][i];
        globals_seen[at] = now;
    }
    return renamed[at];
}

static int part_replaced(const dycl_stock *kind, PyObject *dict, int of_class) {
    for (int i = 0; i < 2; i++) {
        if (PyDict_GetItemString(dict, parts[i])) return 1;
        PyObject *part = of_class ? part_of(kind, i) : NULL;
        int same = !of_class || part == own_parts[kind - dycl_stocks][i];
        Py_XDECREF(part);
        if (!same) return 1;
    }
    return 0;
}

static int body_replaced(const dycl_stock *kind) {
    int at = (int)(kind - dycl_stocks), changed = 0;
    for (int i = 0; i < MOST_BODIES && bodies[at][i].function; i++)
        changed |= PyFunction_GET_CODE(bodies[at][i].function) != bodies[at][i].code;
    return changed;
}

static void read_bodies(int at) {
    PyObject *functions[MOST_BODIES] = {dycl_stocks[at].forward, dycl_stocks[at].callable, own_parts[at][0],
                                        own_parts[at][1]};
    for (int i = 0, n = 0; i < MOST_BODIES; i++)
        if (functions[i] && PyFunction_Check(functions[i])) {
            bodies[at][n].function = functions[i];
            bodies[at][n++].code = Py_NewRef(PyFunction_GET_CODE(functions[i]));
        }
}

/* A property of the class goes before what the module holds, and anything before a parameter or buffer. */
static int class_has(const dycl_stock *kind, PyObject *dict) {
    static const char *const tensors[] = {"weight", "bias", "running_mean", "running_var"};
    PyObject *found = NULL, *key, *value;
    for (Py_ssize_t at = 0; !found && PyDict_Next(dict, &at, &key, &value);) {
        PyObject *of_class = dycl_type_lookup(kind->type, key);
        if (of_class && Py_TYPE(of_class)->tp_descr_set) found = of_class;
    }
    for (size_t i = 0; !found && i < sizeof tensors / sizeof *tensors; i++) {
        PyObject *name = PyUnicode_FromString(tensors[i]);
        if (name) found = dycl_type_lookup(kind->type, name);
        Py_XDECREF(name);
    }
    PyErr_Clear();
    return found != NULL;
}

static void read_globals(int at) {
    if (!PyFunction_Check(dycl_stocks[at].forward)) return;
    globals[at] = PyFunction_GET_GLOBALS(dycl_stocks[at].forward);
    for (int i = 0; i < 2; i++) own_modules[at][i] = Py_XNewRef(PyDict_GetItemString(globals[at], module_names[i]));
}

static int read_functions(PyObject *functional) {
    holders[0] = PyModule_GetDict(functional);
    holders[1] = PyModule_GetDict(dycl_py.torch);
    for (int i = 0; i < DYCL_STOCK_COUNT && holders[0] && holders[1]; i++) {
        for (int h = 0; h < 2; h++) {
            if (dycl_stocks[i].function)
                own[i][h] = Py_XNewRef(PyDict_GetItemString(holders[h], dycl_stocks[i].function));
            own_parts[i][h] = part_of(&dycl_stocks[i], h);
        }
        read_bodies(i);
        read_globals(i);
    }
    return holders[0] && holders[1] ? 0 : -1;
}

static int read_config(const dycl_stock *kind, PyObject *module, PyObject *dict, dycl_stock_config *c) {
    unsigned known = c->instance.type_version;
    c->instance.module = NULL;
    if (part_replaced(kind, dict, known == 0 || known != dycl_type_version(kind->type))) return 0;
    if (known == 0 || known != dycl_type_version(kind->type)) { /* somebody may have replaced the class's forward */
        PyObject *forward = PyObject_GetAttrString((PyObject *)kind->type, "forward");
        int same = forward == kind->forward;
        Py_XDECREF(forward);
        PyErr_Clear();
        if (!same || class_has(kind, dict)) return 0;
    }
    c->parameters = PyDict_GetItemString(dict, "_parameters");
    c->buffers = PyDict_GetItemString(dict, "_buffers");
    if (!c->parameters || !c->buffers || !PyDict_Check(c->parameters) || !PyDict_Check(c->buffers)) return 0;
    memset(c->tensors, 0, sizeof c->tensors);
    if (!kind->read(kind, dict, c)) return 0;
    c->parameters_version = dycl_dict_version(c->parameters);
    c->buffers_version = dycl_dict_version(c->buffers);
    return !PyDict_GetItemString(dict, "forward") && dycl_instance_read(&c->instance, module, dict);
}

static dycl_stock_config *config_of(const dycl_stock *kind, PyObject *module) {
    PyObject *dict = dycl_object_dict(module);
    if (!dict || !dycl_module_class_of(kind->type)->calls || function_replaced(kind) || module_replaced(kind) ||
        body_replaced(kind))
        return NULL;
    dycl_stock_config *c = &configs[dycl_instance_place(module)];
    if (!dycl_instance_is_current(&c->instance, module, dict) ||
        c->parameters_version != dycl_dict_version(c->parameters) ||
        c->buffers_version != dycl_dict_version(c->buffers))
        if (!read_config(kind, module, dict, c)) return NULL;
    return dycl_instance_hooked(&c->instance) ? NULL : c;
}

/* ---- What its forward would have called (region/called.h) */

#define MOST_GIVEN 8

static int find_function(dycl_stock *kind, PyObject *functional) {
    if (!kind->function) return 0;
    int positional = -1, count = 0;
    PyObject *names = PyList_New(0), *words = PyUnicode_FromString(kind->given), *split = NULL;
    if (words) split = PyUnicode_Split(words, NULL, -1);
    for (Py_ssize_t i = 0; names && split && i < PyList_GET_SIZE(split); i++) {
        PyObject *word = Py_NewRef(PyList_GET_ITEM(split, i));
        if (PyUnicode_CompareWithASCIIString(word, "|") == 0) {
            positional = count;
        } else {
            PyUnicode_InternInPlace(&word);
            if (PyList_Append(names, word) < 0) Py_CLEAR(names);
            count++;
        }
        Py_DECREF(word);
    }
    if (names && split) {
        kind->names = PyList_AsTuple(names);
        if (kind->names && positional >= 0) kind->keywords = PyTuple_GetSlice(kind->names, positional, count);
    }
    Py_XDECREF(names);
    Py_XDECREF(words);
    Py_XDECREF(split);
    kind->callable = PyObject_GetAttrString(functional, kind->function);
    return kind->names && kind->callable && (positional < 0 || kind->keywords) ? 0 : -1;
}

static void note_call(dycl_region *region, const dycl_stock *kind, const dycl_stock_config *c, PyObject *module,
                      PyObject *x, PyObject *result) {
    static PyObject *zero; /* owned */
    PyObject *args[1 + MOST_GIVEN] = {x}, *dict = dycl_object_dict(module);
    if (!zero && !(zero = PyFloat_FromDouble(0.0))) PyErr_Clear();
    Py_ssize_t count = kind->names ? PyTuple_GET_SIZE(kind->names) : 0, named = kind->keywords ? 1 : 0;
    if (!kind->callable || !dict || count > MOST_GIVEN || !zero) return;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(kind->names, i), *o = PyDict_GetItem(dict, name);
        if (!o) o = PyDict_GetItem(c->parameters, name);
        if (!o) o = PyDict_GetItem(c->buffers, name);
        if (!o) return;
        if (o == Py_None && PyUnicode_CompareWithASCIIString(name, "momentum") == 0) o = zero; /* so does its forward */
        args[1 + i] = o;
    }
    const dycl_made_call made = {kind->callable, args, 1 + count - named, kind->keywords, NULL, DYCL_NONE, 0};
    dycl_called_note(region, &made, result);
}

/* Whether the tensor has four dimensions. */
static int of_images(dycl_region *region, PyObject *x) {
    uint32_t value;
    if (!dycl_is_lazy(x)) return dycl_abi_rank(dycl_abi_borrow(x)) == 4;
    return dycl_region_value(region, x, &value) == DYCL_OK && region->recorder.graph.values[value].rank == 4;
}

static PyObject *record_stock(dycl_region *region, const dycl_stock *kind, PyObject *module, PyObject *x) {
    if (!dycl_is_lazy(x) && Py_TYPE(x) != dycl_py.tensor_type) return NULL;
    const dycl_stock_config *c = config_of(kind, module);
    if (!c) return NULL;
    if (!kind->record) return c->flag && !of_images(region, x) ? NULL : Py_NewRef(x);
    uint32_t out = 0, first = region->recorder.graph.value_count;
    dycl_status status = kind->record(region, kind, c, x, &out);
    if (status == DYCL_OK && !dycl_track_lets(region, first, 1)) return NULL; /* its forward tells torch */
    if (status == DYCL_OK) {
        PyObject *result = dycl_region_result(region, out);
        if (kind == &dycl_stocks[DYCL_STOCK_LINEAR]) result = dycl_linear_result(region, result, out);
        if (result && region->tracks) note_call(region, kind, c, module, x, result);
        return result;
    }
    if (status == DYCL_ERROR && !PyErr_Occurred()) dycl_py_raise();
    return NULL;
}

/* Undisturbed: a finalizer could end the segment, or take the configuration's place for another module. */
static PyObject *try_stock(const dycl_stock *kind, PyObject *module, PyObject *x) {
    dycl_region *region = dycl_region_current;
    if (!dycl_region_records(region)) return NULL;
    dycl_collect_hold();
    PyObject *result = record_stock(region, kind, module, x);
    dycl_collect_release();
    if (result && kind->record && dycl_region_settle(region) < 0) Py_CLEAR(result);
    return result;
}

/* Where the type's kind stands, or belongs. */
static uint8_t *place_of(const PyTypeObject *type) {
    uint32_t at = dycl_address_hash(type, 7);
    while (kinds[at] && dycl_stocks[kinds[at] - 1].type != type) at = (at + 1) % KIND_PLACES;
    return &kinds[at];
}

static PyObject *stock_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    if (dycl_region_current && PyTuple_GET_SIZE(args) == 1 && !kwargs && !dycl_traced()) {
        int kind = *place_of(Py_TYPE(self)) - 1;
        if (kind >= 0) {
            PyObject *result = try_stock(&dycl_stocks[kind], self, PyTuple_GET_ITEM(args, 0));
            if (result || PyErr_Occurred()) return result;
        }
    }
    return original(self, args, kwargs);
}

/* Assigning to a class attribute __call__ (torch.fx does, for a while) gives every class below its ordinary slot back.
 * Whether there were such. */
static int put_slots_back(void) {
    PyObject *attribute = PyObject_GetAttrString((PyObject *)dycl_py.module_type, "__call__");
    int found = 0;
    for (int i = 0; i < DYCL_STOCK_COUNT && attribute == call_attribute; i++)
        if (dycl_stocks[i].type->tp_call == original) {
            dycl_stocks[i].type->tp_call = stock_call;
            found = 1;
        }
    Py_XDECREF(attribute);
    PyErr_Clear();
    return found;
}

void dycl_modules_refresh(void) {
    static unsigned turn; /* what is put on all classes shows at the first, and on one of them is not urgent */
    turn = (turn + 1) % DYCL_STOCK_COUNT;
    if (__builtin_expect(dycl_module_class_refresh(), 0)) dycl_attribute_forget();
    dycl_instance_refresh();
    int whole = dycl_stocks[0].type->tp_call == stock_call && dycl_stocks[turn].type->tp_call == stock_call;
    if (__builtin_expect(!whole, 0) && put_slots_back()) dycl_composite_lost();
}

int dycl_modules_setup(void) {
    PyObject *nn = PyObject_GetAttrString(dycl_py.torch, "nn");
    PyObject *functional = nn ? PyObject_GetAttrString(nn, "functional") : NULL;
    int result = functional ? dycl_instance_setup() : -1;
    call_attribute = PyObject_GetAttrString((PyObject *)dycl_py.module_type, "__call__");
    if (!call_attribute) result = -1;
    original = dycl_py.module_type->tp_call;
    for (int i = 0; i < DYCL_STOCK_COUNT && result == 0; i++) {
        dycl_stocks[i].type = (PyTypeObject *)PyObject_GetAttrString(nn, dycl_stocks[i].name);
        dycl_stocks[i].forward =
            dycl_stocks[i].type ? PyObject_GetAttrString((PyObject *)dycl_stocks[i].type, "forward") : NULL;
        if (!dycl_stocks[i].forward || find_function(&dycl_stocks[i], functional) < 0)
            result = -1;
        else if (dycl_stocks[i].type->tp_call == original) /* else somebody else is there already */
            dycl_stocks[i].type->tp_call = stock_call;
        if (result == 0) *place_of(dycl_stocks[i].type) = (uint8_t)(1 + i);
    }
    if (result == 0) result = read_functions(functional);
    Py_XDECREF(nn);
    Py_XDECREF(functional);
    return result < 0 ? result : dycl_composite_setup();
}
