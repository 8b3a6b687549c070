#include "py/intercept/slots.h"

#include <string.h>

#include "py/intercept/compare_order.h"
#include "py/intercept/attributes.h"
#include "py/intercept/hooks.h"
#include "py/bind/hosted.h"
#include "py/intercept/fallback.h"
#include "py/intercept/table.h"
#include "py/region/scalar.h"

/* ---- Number slots */

typedef PyObject *(*generic_binary)(PyObject *, PyObject *);
static PyObject *power2(PyObject *a, PyObject *b) { return PyNumber_Power(a, b, Py_None); }
static PyObject *in_place_power2(PyObject *a, PyObject *b) { return PyNumber_InPlacePower(a, b, Py_None); }
static PyObject *compare_eq(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_EQ); }
static PyObject *compare_ne(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_NE); }
static PyObject *compare_lt(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_LT); }
static PyObject *compare_le(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_LE); }
static PyObject *compare_gt(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_GT); }
static PyObject *compare_ge(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_GE); }

/* X(name, number slot, torch's method, what Python does with plain operands) */
#define BINARY_SLOTS(X)                                                                                                \
    X(add, nb_add, "__add__", PyNumber_Add)                                                                            \
    X(subtract, nb_subtract, "__sub__", PyNumber_Subtract)                                                             \
    X(multiply, nb_multiply, "__mul__", PyNumber_Multiply)                                                             \
    X(true_divide, nb_true_divide, "__truediv__", PyNumber_TrueDivide)                                                 \
    X(floor_divide, nb_floor_divide, "__floordiv__", PyNumber_FloorDivide)                                             \
    X(remainder, nb_remainder, "__mod__", PyNumber_Remainder)                                                          \
    X(matrix_multiply, nb_matrix_multiply, "__matmul__", PyNumber_MatrixMultiply)                                      \
    X(and, nb_and, "__and__", PyNumber_And)                                                                            \
    X(or, nb_or, "__or__", PyNumber_Or)                                                                                \
    X(xor, nb_xor, "__xor__", PyNumber_Xor)                                                                            \
    X(inplace_add, nb_inplace_add, "__iadd__", PyNumber_InPlaceAdd)                                                    \
    X(inplace_subtract, nb_inplace_subtract, "__isub__", PyNumber_InPlaceSubtract)                                     \
    X(inplace_multiply, nb_inplace_multiply, "__imul__", PyNumber_InPlaceMultiply)                                     \
    X(inplace_true_divide, nb_inplace_true_divide, "__itruediv__", PyNumber_InPlaceTrueDivide)                         \
    X(inplace_floor_divide, nb_inplace_floor_divide, "__ifloordiv__", PyNumber_InPlaceFloorDivide)                     \
    X(inplace_remainder, nb_inplace_remainder, "__imod__", PyNumber_InPlaceRemainder)                                  \
    X(inplace_and, nb_inplace_and, "__iand__", PyNumber_InPlaceAnd)                                                    \
    X(inplace_or, nb_inplace_or, "__ior__", PyNumber_InPlaceOr)                                                        \
    X(inplace_xor, nb_inplace_xor, "__ixor__", PyNumber_InPlaceXor)
#define COMPARE_SLOTS(X)                                                                                               \
    X(lt, Py_LT, "__lt__", compare_lt)                                                                                 \
    X(le, Py_LE, "__le__", compare_le)                                                                                 \
    X(eq, Py_EQ, "__eq__", compare_eq)                                                                                 \
    X(ne, Py_NE, "__ne__", compare_ne)                                                                                 \
    X(gt, Py_GT, "__gt__", compare_gt)                                                                                 \
    X(ge, Py_GE, "__ge__", compare_ge)

/* What torch.Tensor itself answers to a comparison with something that is no tensor: Python asks that next, perhaps
 * with the operator turned. */
#define X(name, code, method, generic)                                                                                 \
    static PyObject *own_##name(PyObject *a, PyObject *b) { return dycl_py.tensor_type->tp_richcompare(a, b, code); }
COMPARE_SLOTS(X)
#undef X
enum {
#define X(name, slot, method, generic) SLOT_##name,
    BINARY_SLOTS(X) COMPARE_SLOTS(X)
#undef X
        SLOT_power,
    SLOT_inplace_power,
    SLOT_getitem,
    SLOT_setitem,
    SLOT_neg,
    SLOT_abs,
    SLOT_invert,
    SLOT_COUNT
};

typedef struct {
    const char *method;
    generic_binary generic, own; /* what Python does with two tensors, and with a tensor and something else */
    const dycl_binding *row;     /* NULL: nothing bound */
    int in_place, swapped;
    PyObject *reflected;                     /* owned: the name of the method of the operand on the right; NULL: none */
    PyObject *callable, *reflected_callable; /* owned: both methods; NULL: there is none */
} slot_info;

static slot_info slots[SLOT_COUNT] = {
#define X(name, slot, method_name, generic_function)                                                                   \
    [SLOT_##name] = {method_name, generic_function, generic_function, NULL, 0, 0, NULL, NULL, NULL},
    BINARY_SLOTS(X)
#undef X
#define X(name, code, method_name, generic_function)                                                                   \
    [SLOT_##name] = {method_name, generic_function, own_##name, NULL, 0, 0, NULL, NULL, NULL},
        COMPARE_SLOTS(X)
#undef X
            [SLOT_power] = {"__pow__", power2, power2, NULL, 0, 0, NULL, NULL, NULL},
    [SLOT_inplace_power] = {"__ipow__", in_place_power2, in_place_power2, NULL, 0, 0, NULL, NULL, NULL},
    [SLOT_getitem] = {"__getitem__", PyObject_GetItem, PyObject_GetItem, NULL, 0, 0, NULL, NULL, NULL},
    [SLOT_setitem] = {"__setitem__", NULL, NULL, NULL, 0, 0, NULL, NULL, NULL},
    [SLOT_neg] = {"__neg__", NULL, NULL, NULL, 0, 0, NULL, NULL, NULL},
    [SLOT_abs] = {"__abs__", NULL, NULL, NULL, 0, 0, NULL, NULL, NULL},
    [SLOT_invert] = {"__invert__", NULL, NULL, NULL, 0, 0, NULL, NULL, NULL},
};

/* There is no `__imatmul__`: the error that follows names the operator that the program wrote, @ or @=. The class's
 * slot would ask the other operand, too, and Python asks it next. */
static PyObject *own_matrix_multiply(PyObject *a, PyObject *b) {
    PyObject *args[2] = {a, b};
    return PyObject_Vectorcall(slots[SLOT_matrix_multiply].callable, args, 2, NULL);
}

/* Tries to record. NULL without an exception: torch must run it (*why). */
static PyObject *record(const slot_info *slot, PyObject *const *args, Py_ssize_t count, dycl_bail *why) {
    dycl_region *region = dycl_region_current;
    *why = DYCL_BAIL_mode;
    if (!slot->row || !dycl_region_records(region)) return NULL;
    dycl_call call;
    int swapped = count == 2 && !dycl_is_tensor(args[0]);
    region->calling = swapped ? slot->reflected_callable : slot->callable;
    dycl_call_begin(&call, region, args, count, slot->in_place);
    call.swapped = swapped;
    for (Py_ssize_t i = 0; i < count; i++) call.p[i] = args[i]; /* what parsing would find */
    for (int i = (int)count; i < slot->row->parameter_count; i++) call.p[i] = NULL;
    PyObject *result = dycl_binding_settle(&call, dycl_binding_bind(slot->row, &call));
    *why = region->recorder.why;
    return result;
}

/* Something that is no tensor stands on the left, and Python has asked it already. */
static PyObject *reflected(const slot_info *slot, PyObject *a, PyObject *b) {
    dycl_region *region = dycl_region_current;
    PyObject *method = slot->reflected ? PyObject_GetAttr((PyObject *)Py_TYPE(b), slot->reflected) : NULL,
             *arguments[2] = {b, a};
    if (!method) {
        PyErr_Clear();
        return Py_NewRef(Py_NotImplemented);
    }
    if (region) region->passing = 1;
    PyObject *result = PyObject_Vectorcall(method, arguments, 2, NULL);
    if (region) region->passing = 0;
    Py_DECREF(method);
    return result;
}

static PyObject *binary(int which, PyObject *a, PyObject *b) {
    dycl_bail why;
    PyObject *args[2] = {a, b};
    PyObject *result = record(&slots[which], args, 2, &why);
    if (result || PyErr_Occurred()) return result;
    if (dycl_fallback_prepare(dycl_region_current, args, 2,
                              slots[which].row ? slots[which].row->name : slots[which].method, why) < 0)
        return NULL;
    if (!dycl_is_tensor(a)) return reflected(&slots[which], a, b);
    return dycl_fallback_passing(dycl_is_tensor(b) ? slots[which].generic : slots[which].own, a, b);
}

#define X(name, slot, method, generic)                                                                                 \
    static PyObject *slot_##name(PyObject *a, PyObject *b) { return binary(SLOT_##name, a, b); }
BINARY_SLOTS(X)
#undef X

static PyObject *slot_power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) return Py_NewRef(Py_NotImplemented);
    return binary(SLOT_power, a, b);
}

static PyObject *slot_inplace_power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) return Py_NewRef(Py_NotImplemented);
    return binary(SLOT_inplace_power, a, b);
}

static PyObject *slot_compare(PyObject *a, PyObject *b, int op) {
    static const int which[] = {
#define X(name, code, method, generic) [code] = SLOT_##name,
        COMPARE_SLOTS(X)
#undef X
    };
    static const int mirrored[] = {
        [Py_LT] = Py_GT, [Py_LE] = Py_GE, [Py_EQ] = Py_EQ, [Py_NE] = Py_NE, [Py_GT] = Py_LT, [Py_GE] = Py_LE};
    /* eager, two tensors keep their order, and a parameter on the right is asked first, as the subclass that it is */
    PyTypeObject *other = Py_TYPE(b);
    dycl_compare_order turned = other == dycl_py.tensor_type      ? DYCL_COMPARE_AS_RIGHT
                                : other == dycl_py.parameter_type ? DYCL_COMPARE_AS_LEFT
                                                                  : DYCL_COMPARE_OTHERWISE;
    if (turned != DYCL_COMPARE_OTHERWISE && turned == dycl_compare_order_from(__builtin_return_address(0)))
        return binary(which[mirrored[op]], b, a);
    return binary(which[op], a, b);
}

static PyObject *unary(int which, PyObject *a, PyObject *(*generic)(PyObject *)) {
    dycl_bail why;
    PyObject *result = record(&slots[which], &a, 1, &why);
    if (result || PyErr_Occurred()) return result;
    if (dycl_fallback_prepare(dycl_region_current, &a, 1, slots[which].method, why) < 0) return NULL;
    return generic(a);
}

static PyObject *slot_negative(PyObject *a) { return unary(SLOT_neg, a, PyNumber_Negative); }
static PyObject *slot_absolute(PyObject *a) { return unary(SLOT_abs, a, PyNumber_Absolute); }
static PyObject *slot_invert(PyObject *a) { return unary(SLOT_invert, a, PyNumber_Invert); }

/* ---- Values */

static int slot_bool(PyObject *self) {
    dycl_element element;
    int known = dycl_scalar_read(self, &element);
    if (known < 0) return -1;
    if (known) return dycl_element_is_true(&element);
    if (dycl_region_make_plain(self, DYCL_BAIL_fetch) < 0) return -1;
    return PyObject_IsTrue(self);
}

static PyObject *number(PyObject *self, PyObject *(*convert)(const dycl_element *), PyObject *(*generic)(PyObject *)) {
    dycl_element element;
    int learns = dycl_region_needs_gradient(self); /* if so, torch warns */
    int known = learns ? (learns < 0 ? -1 : 0) : dycl_scalar_read(self, &element);
    if (known < 0) return NULL;
    PyObject *result = known ? convert(&element) : NULL;
    if (result || PyErr_Occurred()) return result;
    if (dycl_region_make_plain(self, DYCL_BAIL_fetch) < 0) return NULL;
    return generic(self);
}

static PyObject *slot_float(PyObject *self) { return number(self, dycl_element_float, PyNumber_Float); }
static PyObject *slot_int(PyObject *self) { return number(self, dycl_element_int, PyNumber_Long); }
static PyObject *slot_index(PyObject *self) { return number(self, dycl_element_index, PyNumber_Index); }

static Py_ssize_t slot_length(PyObject *self) {
    dycl_lazy_meta meta;
    if (dycl_lazy_describe(self, &meta) < 0) return -1;
    if (meta.rank) return (Py_ssize_t)meta.sizes[0];
    if (dycl_region_make_plain(self, DYCL_BAIL_arguments) < 0) return -1;
    return PyObject_Length(self); /* torch raises */
}

static PyObject *slot_subscript(PyObject *self, PyObject *index) { return binary(SLOT_getitem, self, index); }

static int slot_assign_subscript(PyObject *self, PyObject *index, PyObject *value) {
    PyObject *args[3] = {self, index, value ? value : Py_None};
    dycl_bail why = DYCL_BAIL_operator;
    PyObject *done = value ? record(&slots[SLOT_setitem], args, 3, &why) : NULL;
    if (done || PyErr_Occurred()) {
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    dycl_lesson *lesson = dycl_region_current ? dycl_hosted_take_lesson(dycl_region_current) : NULL;
    int result = dycl_fallback_prepare(dycl_region_current, args, 3, "__setitem__", why);
    if (result == 0) dycl_lesson_begin(lesson, args, 3);
    if (result == 0) result = value ? PyObject_SetItem(self, index, value) : PyObject_DelItem(self, index);
    dycl_lesson_end(lesson, result == 0 ? Py_None : NULL, args, 3, NULL);
    return result;
}

static Py_hash_t slot_hash(PyObject *self) { /* torch.Tensor.__hash__ is id() */
    PyObject *id = PyLong_FromVoidPtr(self);
    Py_hash_t hash = id ? PyObject_Hash(id) : -1;
    Py_XDECREF(id);
    return hash;
}

/* ---- Installation */

int dycl_slots_install(PyTypeObject *lazy) {
    if (dycl_attributes_install(lazy) < 0 || dycl_hooks_install(lazy) < 0 || dycl_compare_order_setup() < 0) return -1;
    PyNumberMethods *n = lazy->tp_as_number;
#define X(name, slot, method, generic) n->slot = slot_##name;
    BINARY_SLOTS(X)
#undef X
    n->nb_power = slot_power;
    n->nb_inplace_power = slot_inplace_power;
    n->nb_negative = slot_negative;
    n->nb_absolute = slot_absolute;
    n->nb_invert = slot_invert;
    n->nb_bool = slot_bool;
    n->nb_float = slot_float;
    n->nb_int = slot_int;
    n->nb_index = slot_index;
    lazy->tp_as_mapping->mp_length = slot_length;
    lazy->tp_as_mapping->mp_subscript = slot_subscript;
    lazy->tp_as_mapping->mp_ass_subscript = slot_assign_subscript;
    lazy->tp_as_sequence->sq_length = slot_length;
    lazy->tp_richcompare = slot_compare;
    lazy->tp_hash = slot_hash;
    PyType_Modified(lazy);
    return 0;
}

void dycl_slots_bind(void) {
    for (int i = 0; i < SLOT_COUNT; i++) {
        PyObject *callable = PyObject_GetAttrString((PyObject *)dycl_py.tensor_type, slots[i].method);
        if (callable) slots[i].row = dycl_binding_find(callable, &slots[i].in_place, &slots[i].swapped);
        PyErr_Clear();
        if (!slots[i].callable) slots[i].callable = Py_XNewRef(callable);
        Py_XDECREF(callable);
        if (i == SLOT_matrix_multiply && slots[i].callable) slots[i].own = own_matrix_multiply;
        if (!slots[i].reflected) slots[i].reflected = PyUnicode_FromFormat("__r%s", slots[i].method + 2);
        if (!slots[i].reflected_callable && slots[i].reflected)
            slots[i].reflected_callable = PyObject_GetAttr((PyObject *)dycl_py.tensor_type, slots[i].reflected);
        PyErr_Clear();
    }
}
