/* Stock modules: while a region runs, calling a torch.nn module of a known class records at once. The tp_call slot of
 * the exact class is replaced; the attribute __call__ stays what it was. Threads: GIL held. */
#ifndef DYCL_PY_MODULES_STOCK_H
#define DYCL_PY_MODULES_STOCK_H

#include "py/torch/state.h"

int dycl_modules_setup(void);    /* 0 or -1 */
void dycl_modules_refresh(void); /* at the begin of a region: the slots may have been lost */

#endif
