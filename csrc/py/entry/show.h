/* Segments of a site as texts, for dycl.debug.
 *
 * Ownership: none is kept. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_SHOW_H
#define DYCL_PY_ENTRY_SHOW_H

#include "py/site/site.h"

/* What the site's last calls ran: [(topic, text)]; topic "": a line about the segment whose texts follow. */
PyObject *dycl_site_show(dycl_site *site, uint32_t topics, uint64_t calls);
/* A text of a graph, parsed and printed again. */
PyObject *dycl_log_reprint(const char *text);

#endif
