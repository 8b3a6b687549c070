/* The class of lazy tensors as an object that the program can hold: `type(x)`. It is not torch.Tensor, but compares and
 * hashes as it, so that programs that look types up in tables (`{torch.Tensor: ...}[type(x)]`, copyreg, the pickler of
 * torch.multiprocessing) find what they put there. What is made of it, or asked of it, is torch.Tensor's. */
#include "py/region/lazy.h"

static PyObject *class_compare(PyObject *a, PyObject *b, int op) {
    if (op == Py_EQ || op == Py_NE) {
        PyObject *lazy = (PyObject *)dycl_py.lazy_type, *tensor = (PyObject *)dycl_py.tensor_type;
        int same = (a == lazy ? tensor : a) == (b == lazy ? tensor : b);
        return PyBool_FromLong(same == (op == Py_EQ));
    }
    Py_RETURN_NOTIMPLEMENTED;
}

static Py_hash_t class_hash(PyObject *class) {
    if (class != (PyObject *)dycl_py.lazy_type) return PyType_Type.tp_hash(class);
    return PyObject_Hash((PyObject *)dycl_py.tensor_type);
}

static PyObject *class_call(PyObject *class, PyObject *args, PyObject *kwargs) {
    if (class != (PyObject *)dycl_py.lazy_type) return PyType_Type.tp_call(class, args, kwargs);
    return PyObject_Call((PyObject *)dycl_py.tensor_type, args, kwargs);
}

static PyObject *class_instance_check(PyObject *class, PyObject *o) {
    int is = class == (PyObject *)dycl_py.lazy_type ? PyObject_IsInstance(o, (PyObject *)dycl_py.tensor_type)
                                                    : PyObject_TypeCheck(o, (PyTypeObject *)class);
    return is < 0 ? NULL : PyBool_FromLong(is);
}

static PyObject *class_subclass_check(PyObject *class, PyObject *other) {
    int is = class == (PyObject *)dycl_py.lazy_type ? PyObject_IsSubclass(other, (PyObject *)dycl_py.tensor_type)
             : PyType_Check(other)                  ? PyType_IsSubtype((PyTypeObject *)other, (PyTypeObject *)class)
                                                    : 0;
    return is < 0 ? NULL : PyBool_FromLong(is);
}

/* Picklers look a class's own class up in copyreg's table before they look for its name, where torch.Tensor stands:
 * max((torch.Tensor,)) is what they write. */
static PyObject *class_reduce(PyObject *self, PyObject *class) {
    (void)self;
    (void)class;
    PyObject *builtins = PyEval_GetBuiltins(), *max = builtins ? PyDict_GetItemString(builtins, "max") : NULL;
    if (!max) return PyErr_Format(PyExc_RuntimeError, "dycl: no builtins");
    return Py_BuildValue("O((O))", max, dycl_py.tensor_type);
}

static PyMethodDef reduce_def = {"reduce", class_reduce, METH_O, NULL};

static int register_reduce(PyObject *metaclass) {
    PyObject *copyreg = PyImport_ImportModule("copyreg"), *done = NULL;
    PyObject *reduce = copyreg ? PyCFunction_New(&reduce_def, NULL) : NULL;
    if (reduce) done = PyObject_CallMethod(copyreg, "pickle", "OO", metaclass, reduce);
    Py_XDECREF(copyreg);
    Py_XDECREF(reduce);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

PyObject *dycl_lazy_metaclass(void) {
    static PyMethodDef methods[] = {{"__instancecheck__", class_instance_check, METH_O, NULL},
                                    {"__subclasscheck__", class_subclass_check, METH_O, NULL},
                                    {NULL, NULL, 0, NULL}};
    PyType_Slot slots[] = {{Py_tp_richcompare, (void *)class_compare},
                           {Py_tp_hash, (void *)class_hash},
                           {Py_tp_call, (void *)class_call},
                           {Py_tp_methods, methods},
                           {0, NULL}};
    PyType_Spec spec = {"torch._C._TensorMeta", 0, 0, Py_TPFLAGS_DEFAULT, slots};
    PyObject *bases = PyTuple_Pack(1, Py_TYPE(dycl_py.tensor_type));
    PyObject *metaclass = bases ? PyType_FromSpecWithBases(&spec, bases) : NULL;
    Py_XDECREF(bases);
    if (metaclass && register_reduce(metaclass) < 0) Py_CLEAR(metaclass);
    return metaclass;
}
