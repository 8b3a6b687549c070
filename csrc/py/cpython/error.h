/* Exceptions that are not the program's. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_ERROR_H
#define DYCL_PY_CPYTHON_ERROR_H

#include "py/cpython/compat.h"

/* The kinds that torch and we raise: what is of another one, a signal handler has raised. A tuple; borrowed, or NULL
 * with an exception. First called at import. */
PyObject *dycl_error_kinds(void);
/* Behind code that may fail without harm, and in which Python code ran: clears what torch or we raised. 0, or -1: it is
 * of another kind (KeyboardInterrupt), and stays. */
int dycl_error_forgive(void);
/* Takes an exception that was fetched before, which goes before what has been raised since, if that is forgiven. */
void dycl_error_restore(PyObject *type, PyObject *value, PyObject *traceback);

#endif
