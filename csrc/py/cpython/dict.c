#include "py/cpython/dict.h"

dycl_watched_dict dycl_watched_dicts[1 << DYCL_WATCHED_BITS];

static uint64_t last_version = UINT64_C(1) << 63; /* none that CPython gives a dict */

#if DYCL_HAS_INLINE_VALUES
/* Taking the last item out gives the dict a table of its own. 0: it has none yet. */
static int join(PyObject *dict) {
    PyObject *type, *value, *traceback, *item = NULL;
    if (!PyDict_CheckExact(dict)) return 1;
    PyErr_Fetch(&type, &value, &traceback);
    int is_empty = !PyDict_GET_SIZE(dict), done = !is_empty || PyDict_SetItemString(dict, "", Py_None) == 0;
    if (done) done = (item = PyObject_CallMethod(dict, "popitem", NULL)) != NULL;
    if (done && !is_empty) /* there is room for it */
        done = PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) == 0;
    Py_XDECREF(item);
    PyErr_Restore(type, value, traceback);
    return done;
}
#elif DYCL_HAS_DICT_WATCHERS
static int join(PyObject *dict) {
    (void)dict;
    return 1;
}
#endif

#if DYCL_HAS_DICT_WATCHERS
static int watcher = -1;

static int changed(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
    (void)key;
    (void)value;
    dycl_watched_dict *row = dycl_dict_row(dict);
    if (row->dict == dict) {
        row->version = ++last_version;
        if (event == PyDict_EVENT_DEALLOCATED) row->dict = NULL;
    }
    return 0;
}

void dycl_dict_setup(void) {
    watcher = PyDict_AddWatcher(changed);
    if (watcher < 0) PyErr_Clear(); /* there are eight in all: dicts are new each time then */
}

/* Two dicts of one row take it from each other, and are new each time. */
uint64_t dycl_dict_watch(PyObject *dict) {
    dycl_watched_dict *row = dycl_dict_row(dict);
    if (watcher < 0 || !join(dict)) return ++last_version;
    if (PyDict_Watch(watcher, dict) < 0) {
        PyErr_Clear();
        return ++last_version;
    }
    row->dict = dict;
    return row->version = ++last_version;
}
#else
void dycl_dict_setup(void) {}

uint64_t dycl_dict_watch(PyObject *dict) {
    (void)dict;
    return ++last_version;
}
#endif

#if DYCL_KNOWS_DICT_SPLIT
uint64_t dycl_dict_joined_version(PyObject *dict) {
    return join(dict) && !((PyDictObject *)dict)->ma_values ? dycl_dict_version(dict) : ++last_version;
}
#endif
