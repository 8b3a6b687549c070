/* Whose a piece of Python code is: torch's, or that of the program and everybody else.
 *
 * Ownership: code is borrowed. Threads: GIL held. */
#ifndef DYCL_PY_TORCH_OWN_CODE_H
#define DYCL_PY_TORCH_OWN_CODE_H

#include "py/torch/state.h"

int dycl_torchs_own(const PyObject *code);
void dycl_own_code_setup(void);

#endif
