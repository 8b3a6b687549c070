/* Everything that is done once, when torch is there. Threads: GIL held. */
#ifndef DYCL_PY_SETUP_H
#define DYCL_PY_SETUP_H

/* Imports torch, finds what is needed of it, and puts in place what sees its calls. 0, or -1 with an exception that
 * says what is missing. */
int dycl_py_setup(void);

#endif
