/* Calls that need gradients: whether a region records them (region/track.h), or torch runs them. This is the one place
 * that decides it.
 *
 * As a rule they are recorded, and nothing more is asked. They are not with DYCL_TRAIN=0, for a target that was
 * accelerated with options (pack=False, precision="bf16"), in anomaly mode, and under hooks on saved tensors. Then:
 *
 * At entry, an argument or the module's first parameter requires gradients: no region. Where they are disabled at
 * entry and enabled inside, this is asked then (dycl_region_enable_gradients).
 *
 * Inside, an operator meets a tensor that requires them (of a function's closure, of a module that is frozen in part):
 * the region steps aside, and the rest of the call runs in torch as it would have.
 *
 * From then on, where such a call had recorded next to nothing, the site's calls run in torch as a whole while
 * gradients are enabled, and regions are tried again ever more rarely. Where much is recorded before (a frozen
 * backbone), the measured times decide (site/choose.h).
 *
 * Ownership: part of a site. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_GRADIENT_H
#define DYCL_PY_ENTRY_GRADIENT_H

#include "py/site/site.h"

typedef enum {
    DYCL_GRADIENT_NONE,
    DYCL_GRADIENT_OF_PARAMETERS /* of nothing else at entry */,
    DYCL_GRADIENT_WANTED
} dycl_gradient_need;

/* Whether the site's regions would record what needs gradients now, and whether they do: nothing else looks at what is
 * saved for the backward pass. */
int dycl_gradient_may_track(const dycl_site *site);
int dycl_gradient_tracks(const dycl_site *site);
/* What this call is known to need. */
dycl_gradient_need dycl_gradient_needed(dycl_site *site, PyObject *const *args, Py_ssize_t count, PyObject *kwnames);
void dycl_gradient_wait(dycl_gradient *gradient); /* in vain again: 16 calls in torch, then twice as many each time */
/* After a region that began with gradients enabled. met: a tensor that requires them; recorded: operators of this call.
 */
void dycl_gradient_learn(dycl_gradient *gradient, int met, uint64_t recorded);

#endif
