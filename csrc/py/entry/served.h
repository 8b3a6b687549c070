/* Which of torch's Python code runs here without its Python: code that was read, and only while all functions that it
 * consists of are what they were. A program, or another library, may put its own in their place.
 *
 * Ownership: what is asked for is kept. Threads: GIL held. */
#ifndef DYCL_PY_ENTRY_SERVED_H
#define DYCL_PY_ENTRY_SERVED_H

#include "py/cpython/compat.h"

/* kinds: a dict from an optimizer's class or a function to a tuple of (module's dict or class, name) of all functions
 * that it consists of; while one of them is another one than now, or has another body, the kind is not served. 0 or
 * -1. */
int dycl_served_set(PyObject *kinds);
int dycl_served_is(PyObject *kind); /* 0 too with an exception */

#endif
