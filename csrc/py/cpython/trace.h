/* Whether somebody watches the Python functions that run (sys.settrace, sys.setprofile, since 3.12
 * sys.monitoring): then none is left out.
 *
 * Ownership: none. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_TRACE_H
#define DYCL_PY_CPYTHON_TRACE_H

#include "py/cpython/thread.h"

void dycl_trace_setup(void);

extern int dycl_monitored; /* a tool of sys.monitoring listens, or may */

static inline int dycl_traced(void) {
#if DYCL_KNOWS_TRACERS
    const PyThreadState *thread = dycl_thread();
    return thread->c_tracefunc || thread->c_profilefunc || dycl_monitored;
#else
    return 1; /* sys.gettrace does not tell of all */
#endif
}

#endif
