#include "py/site/log.h"

static PyObject *function; /* owned */

int dycl_log_set_function(PyObject *o) {
    Py_XSETREF(function, Py_NewRef(o));
    dycl_log_host();
    return 0;
}

PyObject *dycl_log_after(PyObject *result) {
    static _Thread_local int busy; /* a handler's own calls do not come here again */
    if (!function || busy || !dycl_log_waits()) return result;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    busy = 1;
    PyObject *done = PyObject_CallNoArgs(function);
    busy = 0;
    Py_XDECREF(done);
    if (!done && (type || PyErr_ExceptionMatches(PyExc_Exception)))
        PyErr_Clear(); /* a handler of the program's that fails is no failure of the call */
    if (type) PyErr_Restore(type, value, traceback);
    if (PyErr_Occurred()) Py_CLEAR(result);
    return result;
}

int dycl_log_add(PyObject *list, const char *topic, PyObject *text) {
    PyObject *row = text ? Py_BuildValue("(sO)", topic, text) : NULL;
    int result = row ? PyList_Append(list, row) : -1;
    Py_XDECREF(row);
    Py_XDECREF(text);
    return result;
}

int dycl_log_add_all(PyObject *list, dycl_log_text *texts) {
    int result = 0;
    for (const dycl_log_text *t = texts; t && result == 0; t = t->next)
        result = dycl_log_add(list, t->topic, PyUnicode_FromString(t->text));
    dycl_log_free(texts);
    return result;
}

PyObject *dycl_log_take_list(void) {
    uint32_t lost;
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    if (dycl_log_add_all(list, dycl_log_take(&lost)) < 0) {
        Py_DECREF(list);
        return NULL;
    }
    return Py_BuildValue("(NI)", list, lost);
}
