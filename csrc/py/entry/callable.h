/* The object that stands for an accelerated callable: a site (py/site/site.h) that can be called.
 *
 * Ownership: as said. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_CALLABLE_H
#define DYCL_PY_ENTRY_CALLABLE_H

#include "py/site/site.h"

extern PyTypeObject dycl_site_type;

/* One of callable and module is NULL. died (or NULL): called with the weak reference when the module dies. New
 * reference */
PyObject *dycl_site_create(PyObject *callable, PyObject *module, PyObject *died);
/* The site that was called last (outermost), borrowed; NULL when there is none or it is gone. */
dycl_site *dycl_site_last(void);
void dycl_site_set_last(dycl_site *site); /* may run Python code */

#endif
