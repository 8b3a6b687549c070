/* One hint, once a model: its calls run in torch because gradients are enabled, and nobody uses them (torch.no_grad()
 * was forgotten).
 *
 * It is said through the logger "dycl", which turns into no exception whatever filters the program sets, and only where
 * it cannot be wrong: the module is in evaluation mode, no argument requires gradients, no backward pass ever ran in
 * this process, and the graphs behind the results of twenty calls in a row were let go before the next but one began. A
 * mark in the metadata of the results' graph nodes dies with them.
 *
 * Ownership: part of a site. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_HINT_H
#define DYCL_PY_ENTRY_HINT_H

#include "py/site/site.h"

int dycl_hint_setup(void); /* 0 or -1 */
void dycl_hint_clear(dycl_hint *hint);
/* Around a call that torch runs because the module's parameters require gradients. result NULL: it raised. 0, or -1
 * with an exception that is no Exception (Ctrl-C while the hint is written). */
void dycl_hint_before(dycl_site *site);
int dycl_hint_after(dycl_site *site, PyObject *result);

#endif
