/* Lines of explain (internal to site/).
 *
 * Ownership: the list of lines is the caller's. Threads: GIL held. */
#ifndef DYCL_PY_SITE_REPORT_H
#define DYCL_PY_SITE_REPORT_H

#include "py/site/site.h"

int dycl_say(PyObject *lines, PyObject *line); /* steals the line; NULL: an exception is set. 0 or -1 */
/* "3 tensors (f32[4,8], ...)": new reference. */
PyObject *dycl_say_tensors(const dycl_graph *graph, const uint32_t *values, uint32_t count);
/* The plan of a segment, if it has one. 0 or -1 */
int dycl_say_plan(PyObject *lines, const dycl_segment *segment);

/* What the calls of a site had of autograd; of a segment's results when it ran last; backward passes through it. 0 or
 * -1 (report_train.c). */
int dycl_explain_training(PyObject *lines, const dycl_site *site);
int dycl_explain_history(PyObject *lines, const dycl_segment *segment);
int dycl_explain_passes(PyObject *lines, const dycl_segment *segment, uint32_t id);

#endif
