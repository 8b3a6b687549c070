#include "py/region/recording.h"

#include <string.h>

#include "base/alloc.h"
#include "py/site/site.h"

static void recording_dealloc(PyObject *self) {
    dycl_recording *r = (dycl_recording *)self;
    dycl_free(r->scalars);
    dycl_free(r->tracked);
    dycl_passes_release(r->passes);
    dycl_segment_release(r->segment);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject recording_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dycl.Recording",
    .tp_basicsize = sizeof(dycl_recording),
    .tp_dealloc = recording_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

int dycl_recording_setup(void) { return PyType_Ready(&recording_type); }

PyObject *dycl_recording_new(const dycl_region *region, dycl_segment *segment) {
    const dycl_graph *graph = &segment->graph;
    dycl_recording *r = (dycl_recording *)recording_type.tp_alloc(&recording_type, 0);
    if (!r) return NULL;
    dycl_segment_retain(r->segment = segment);
    r->passes = dycl_passes_of(region->site);
    r->scalars = dycl_alloc((graph->scalar_count + 1) * sizeof *r->scalars);
    r->tracked = dycl_alloc(graph->value_count + 1);
    if (!r->scalars || !r->tracked) goto fail;
    if (graph->scalar_count) /* else there is perhaps no array */
        memcpy(r->scalars, region->recorder.scalars, graph->scalar_count * sizeof *r->scalars);
    memcpy(r->tracked, region->tracked, graph->value_count);
    return (PyObject *)r;
fail:
    Py_DECREF(r);
    return PyErr_NoMemory();
}
