#include "py/cpython/trace.h"

int dycl_monitored;

#if DYCL_HAS_MONITORING
#include "py/cpython/wrap.h"

enum { TOOLS = 6 }; /* sys.monitoring's, for everybody */

/* The functions that say what is listened to. They take their arguments as an array in 3.12 and 3.13. */
static dycl_function_of_array original_set_events, original_set_local_events;
static PyObject *get_events; /* owned */
static int local; /* some code was, or may have been, listened to by itself; which is not known, so this stays */

/* A tool's events everywhere, or -1: unknown. */
static long events_of(int tool) {
    PyObject *number = PyObject_CallFunction(get_events, "i", tool);
    long events = number ? PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    PyErr_Clear();
    return events;
}

static void look(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int found = local;
    for (int tool = 0; tool < TOOLS && !found; tool++) found = events_of(tool) != 0;
    dycl_monitored = found;
    PyErr_Restore(type, value, traceback);
}

static PyObject *hook_set_events(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    PyObject *result = original_set_events(self, args, count);
    look();
    return result;
}

static PyObject *hook_set_local_events(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count && !(PyLong_CheckExact(args[count - 1]) && PyObject_Not(args[count - 1]))) local = dycl_monitored = 1;
    return original_set_local_events(self, args, count);
}

static dycl_function_of_array watch(PyObject *monitoring, const char *name, dycl_function_of_array hook) {
    PyObject *function = PyObject_GetAttrString(monitoring, name);
    PyCFunction original = dycl_wrap_builtin(function, METH_FASTCALL, DYCL_AS_FUNCTION(hook));
    Py_XDECREF(function);
    return (dycl_function_of_array)(void (*)(void))original;
}

void dycl_trace_setup(void) {
    PyObject *monitoring = PySys_GetObject("monitoring"); /* borrowed */
    dycl_monitored = 1;
    if (!monitoring) return;
    get_events = PyObject_GetAttrString(monitoring, "get_events");
    PyObject *get_tool = PyObject_GetAttrString(monitoring, "get_tool");
    original_set_events = watch(monitoring, "set_events", hook_set_events);
    original_set_local_events = watch(monitoring, "set_local_events", hook_set_local_events);
    PyErr_Clear();
    int found = get_events && get_tool && original_set_events && original_set_local_events;
    for (int tool = 0; found && tool < TOOLS; tool++) { /* one that is there already may listen to some code */
        PyObject *name = PyObject_CallFunction(get_tool, "i", tool);
        if (name != Py_None) local = 1;
        Py_XDECREF(name);
        PyErr_Clear();
    }
    Py_XDECREF(get_tool);
    if (found) look();
}
#else
void dycl_trace_setup(void) {}
#endif
