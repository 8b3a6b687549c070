/* A call of a site: as a region, or in torch. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_ENTER_H
#define DYCL_PY_ENTRY_ENTER_H

#include "py/site/site.h"

/* Runs callable(*args) as a region of the site; steps aside (plain call) where recording would not be exact. New
 * reference or NULL. */
PyObject *dycl_region_call(dycl_site *site, PyObject *callable, PyObject *const *args, size_t nargsf,
                           PyObject *kwnames);

/* Whether torch is in no mode that has to see each operator (autocast, tracing, compiling...). */
int dycl_enter_plain_state(void);
/* Whether a function of torch's may do without its Python, in a region or outside: nobody traces or profiles it, and
 * torch is in no such mode. */
int dycl_enter_nobody_watches(void);
/* What torch.set_num_threads said holds in a thread from torch's first parallel operator there on, or from this
 * question on. */
void dycl_enter_learn_threads(void);

#endif
