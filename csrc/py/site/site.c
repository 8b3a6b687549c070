#include "py/site/site.h"

#include "base/alloc.h"

int dycl_disabled;

struct dycl_plan_cache *dycl_site_cache(void) {
    static dycl_plan_cache *cache;
    if (!cache) cache = dycl_plan_cache_create();
    return cache;
}

/* ---- What was left to torch */

static void note_left(dycl_site *site, PyObject *callable, dycl_bail why) {
    PyFrameObject *frame = PyEval_GetFrame(); /* borrowed */
    PyCodeObject *code = frame ? PyFrame_GetCode(frame) : NULL;
    int line = frame ? PyFrame_GetLineNumber(frame) : 0;
    for (int i = 0; i < site->left_count; i++) {
        dycl_left_row *row = &site->left[i];
        if (row->callable != callable || row->code != (PyObject *)code || row->line != line || row->why != why)
            continue;
        row->count++;
        Py_XDECREF(code);
        return;
    }
    if (site->left_count == site->left_room && site->left_count < DYCL_SITE_LEFT) {
        int room = site->left_room ? 2 * site->left_room : 4;
        void *block = dycl_realloc(site->left, (size_t)room * sizeof *site->left);
        if (block) {
            site->left = block;
            site->left_room = room;
        }
    }
    if (site->left_count < site->left_room && code) {
        site->left[site->left_count++] = (dycl_left_row){Py_NewRef(callable), (PyObject *)code, line, why, 1};
    } else {
        Py_XDECREF(code);
    }
}

void dycl_site_left_at(dycl_site *site, PyObject *callable, dycl_bail why) {
    site->stats.torch++;
    site->stats.bails[why]++;
    if (Py_TYPE(callable) ==
        dycl_py.method_wrapper_type) { /* a getter: made anew for each call, its descriptor is not */
        PyObject *descriptor = PyObject_GetAttrString(callable, "__self__");
        if (descriptor) note_left(site, descriptor, why);
        Py_XDECREF(descriptor);
        PyErr_Clear();
        return;
    }
    note_left(site, callable, why);
}

void dycl_site_replayed(dycl_site *site, const char *why) {
    site->stats.replays++;
    PyObject *text = PyUnicode_FromString(why), *old = site->replayed;
    if (!text) {
        PyErr_Clear(); /* it is only for explain */
        return;
    }
    site->replayed = text;
    Py_XDECREF(old);
}
