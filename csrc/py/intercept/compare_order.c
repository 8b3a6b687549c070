#include "py/intercept/compare_order.h"

const void *dycl_compare_places[2][DYCL_COMPARE_CALLERS];

static const void *seen;

static PyObject *probe_compare(PyObject *a, PyObject *b, int op) {
    (void)a;
    (void)b;
    (void)op;
    seen = __builtin_return_address(0);
    Py_RETURN_NONE;
}

static PyType_Slot base_slots[] = {{0, NULL}};
static PyType_Slot probe_slots[] = {{Py_tp_richcompare, probe_compare}, {0, NULL}};
static PyType_Spec base_spec = {"dycl._core.AskedBase", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, base_slots};
static PyType_Spec probe_spec = {"dycl._core.Asked", 0, 0, Py_TPFLAGS_DEFAULT, probe_slots};

/* a < b by the interpreter's own instruction; what is new or NULL, as every result here */
static PyObject *by_instruction(PyObject *a, PyObject *b) {
    PyObject *code = Py_CompileString("a < b", "<dycl>", Py_eval_input);
    PyObject *names = Py_BuildValue("{sOsO}", "a", a, "b", b);
    PyObject *result = code && names ? PyEval_EvalCode(code, names, names) : NULL;
    Py_XDECREF(code);
    Py_XDECREF(names);
    return result;
}

static PyObject *by_function(PyObject *a, PyObject *b) { return PyObject_RichCompare(a, b, Py_LT); }

int dycl_compare_order_setup(void) {
    static PyObject *(*const ways[DYCL_COMPARE_CALLERS])(PyObject *, PyObject *) = {by_instruction, by_function};
    PyObject *base_type = PyType_FromSpec(&base_spec),
             *probe_type = base_type ? PyType_FromSpecWithBases(&probe_spec, base_type) : NULL;
    PyObject *base = probe_type ? PyObject_CallNoArgs(base_type) : NULL,
             *probe = base ? PyObject_CallNoArgs(probe_type) : NULL;
    int failed = !probe;
    for (int way = 0; way < DYCL_COMPARE_CALLERS && !failed; way++) {
        for (int right = 0; right < 2 && !failed; right++) {
            seen = NULL;
            PyObject *result = right ? ways[way](base, probe) : ways[way](probe, base);
            failed = !result;
            Py_XDECREF(result);
            dycl_compare_places[right][way] = seen;
        }
    }
    for (int way = 0; way < DYCL_COMPARE_CALLERS;
         way++) { /* a compiler that made one place of the two: nothing can be told by it */
        for (int other = 0; other < DYCL_COMPARE_CALLERS; other++)
            if (dycl_compare_places[0][way] == dycl_compare_places[1][other])
                dycl_compare_places[0][way] = dycl_compare_places[1][other] = NULL;
    }
    Py_XDECREF(probe);
    Py_XDECREF(base);
    Py_XDECREF(probe_type);
    Py_XDECREF(base_type);
    return failed ? -1 : 0;
}
