#include "py/cpython/dict.h"

dycl_watched_dict dycl_watched_dicts[1 << DYCL_WATCHED_BITS];

static uint64_t last_version = UINT64_C(1) << 63; /* none that CPython gives a dict */

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
    if (watcher < 0) return ++last_version;
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
