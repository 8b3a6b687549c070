/* Texts of graphs and plans for people (opt/log.h), handed to Python when a call, or a backward pass, has ended: a
 * handler of Python's logging may run any code, which must not meet a half recorded segment.
 *
 * Ownership: the function is kept. Threads: GIL held. */
#ifndef DYCL_PY_SITE_LOG_H
#define DYCL_PY_SITE_LOG_H

#include "opt/log.h"
#include "py/torch/state.h"

int dycl_log_set_function(PyObject *function); /* called without arguments when texts wait; it takes them */
/* Outside of all regions: `result` (NULL with an exception) comes back, or NULL where an interrupt came meanwhile. */
PyObject *dycl_log_after(PyObject *result);

PyObject *dycl_log_take_list(void); /* ([(topic, text)], how many were lost) */
/* Append (topic, text) to a list. 0 or -1 */
int dycl_log_add(PyObject *list, const char *topic, PyObject *text); /* steals the text; NULL: an exception is set */
int dycl_log_add_all(PyObject *list, dycl_log_text *texts);          /* frees them */

#endif
