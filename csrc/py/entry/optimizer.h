/* Steps of torch's optimizers: each is a region in which operators in place on parameters and on the optimizer's state
 * are recorded too (region/replace.h), so that all of a step is one segment and each parameter's update one pass over
 * memory.
 *
 * torch.optim's own step functions are redirected; those of other libraries are not, because their code may look at a
 * parameter's memory where we do not see it, and neither are steps with a closure, which is the program's code. Those
 * optimizers count that were given to dycl.accelerate, those of accelerated models, and all under dycl.accelerate_all;
 * with DYCL_TRAIN=0 only the first.
 *
 * Most steps run without their Python (update.h).
 *
 * Ownership: a table holds a site for each optimizer while it lives. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_OPTIMIZER_H
#define DYCL_PY_ENTRY_OPTIMIZER_H

#include "py/site/site.h"

int dycl_optimizer_watch(PyObject *functions);       /* a sequence of torch.optim's step functions. 0 or -1 */
int dycl_optimizer_add(PyObject *optimizer);         /* its steps are regions from now on. 0 or -1 */
dycl_site *dycl_optimizer_site(PyObject *optimizer); /* borrowed; NULL: it has none */
/* function(optimizer): whether its parameters are those of an accelerated model, True or False. */
void dycl_optimizer_ask(PyObject *function);
/* Models were accelerated since, or all of them (no longer): the function's answers may be others. */
void dycl_optimizer_changed(int all);
int dycl_optimizer_counts_all(void); /* all optimizers count */

#endif
