/* Outermost calls of modules that were not given to dycl.accelerate themselves: of all (dycl.accelerate_all), or of the
 * parts of accelerated models. A descriptor stands as torch.nn.Module._compiled_call_impl on the class. torch asks an
 * instance for that attribute in each call: inside a region it is None, and the call goes on as ever; outside, it is
 * the site of this module. A module's own attribute (Module.compile, dycl.accelerate) goes first, as for any descriptor
 * without __set__.
 *
 * Parts, because a model is often used by methods of its own (encode and decode of a VAE, a step of Lightning's) that
 * call them outside of its forward. Within a backward pass they are torch's: there checkpointing calls them again, and
 * looks at what is saved.
 *
 * Ownership: the table owns the sites; a site dies with its module, and when more than DYCL_EVERYWHERE_SITES are alive
 * those not called lately go.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_EVERYWHERE_H
#define DYCL_PY_ENTRY_EVERYWHERE_H

#include "py/torch/abi.h"
#include "py/site/site.h"

#define DYCL_EVERYWHERE_SITES 4096

PyObject *dycl_everywhere_descriptor(void);        /* new reference: the one descriptor; NULL with an exception */
dycl_site *dycl_everywhere_find(PyObject *module); /* borrowed: the site that a module got here, or NULL */
/* Whether all modules count now. */
void dycl_everywhere_count_all(int on);
/* function(module): the options of the accelerated model that it is a part of, or None. Asked once for a module, and
 * again after dycl_everywhere_changed, when another model was accelerated. */
void dycl_everywhere_ask(PyObject *function);
void dycl_everywhere_changed(void);
void dycl_everywhere_trim(void); /* keeps the bound; may run Python code (finalizers) */

/* A call that runs in torch as a whole: what it calls inside is not asked again, as long as torch's state is what it
 * was. */
typedef struct {
    int how; /* DYCL_QUIET_... */
    int grad, mode_depth;
    dycl_dispatch_state dispatch;
} dycl_quiet;

enum { DYCL_QUIET_NOT, DYCL_QUIET_ALL, DYCL_QUIET_SAME_STATE };

extern _Thread_local dycl_quiet dycl_quiet_current __attribute__((tls_model("initial-exec")));

void dycl_quiet_same_state(void); /* this thread, until the caller puts the former value back */

#endif
