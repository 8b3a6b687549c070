/* A shorter way from torch's builtin functions to their bindings. Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_SHORTCUT_H
#define DYCL_PY_INTERCEPT_SHORTCUT_H

#include "py/bind/call.h"

/* Calls of a bound builtin of torch with a lazy tensor among their first arguments record at once from now on; every
 * other callable and every other call stays as it is. */
void dycl_shortcut_install(PyObject *callable);

/* The types of a call's arguments as a number, 0 where torch's parser looks at more than types and has to be asked each
 * time; whether a call with these types got through it before, and that one did. is_method: the first argument is self,
 * which is not parsed. */
uint64_t dycl_shortcut_pattern(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *kwnames,
                               int is_method);
int dycl_shortcut_known(uint64_t pattern);
void dycl_shortcut_remember(uint64_t pattern);

/* A call with types that are not known (pattern: theirs, or 0): torch's parser sees it, in `call`, and what it refuses
 * of a lazy tensor it is asked again of plain ones. lazy: there is one. */
PyObject *dycl_shortcut_parse(dycl_region *region, vectorcallfunc call, PyObject *callable, PyObject *const *args,
                              size_t nargsf, PyObject *kwnames, uint64_t pattern, int is_method, int lazy);

/* 1: the exception that is set is the parser's, and is cleared: what it says of a lazy tensor may differ from what it
 * says of a plain one, so torch is to look at plain ones. 0: another, or of the program's own code: nothing runs twice.
 */
int dycl_shortcut_refused(PyObject *const *args, Py_ssize_t count, PyObject *kwnames);

#endif
