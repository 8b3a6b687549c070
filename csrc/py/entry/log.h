/* Texts of graphs and plans for people (opt/log.h), handed to Python when a call has ended: a handler of Python's
 * logging may run any code, which must not meet a half recorded segment.
 *
 * Ownership: the function is kept. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_LOG_H
#define DYCL_PY_ENTRY_LOG_H

#include "py/site/site.h"

int dycl_log_set_function(PyObject *function); /* called without arguments when texts wait; it takes them */
/* After an outermost call: `result` (NULL with an exception) comes back, or NULL where an interrupt came meanwhile. */
PyObject *dycl_log_after(PyObject *result);

PyObject *dycl_log_take_list(void); /* ([(topic, text)], how many were lost) */
/* What the site's last calls ran: [(topic, text)]; topic "": a line about the segment whose texts follow. */
PyObject *dycl_site_show(dycl_site *site, uint32_t topics, uint64_t calls);
/* A text of a graph, parsed and printed again. */
PyObject *dycl_log_reprint(const char *text);

#endif
