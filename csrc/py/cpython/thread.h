/* The thread that runs, which the interpreter is asked for at each module and each function of torch's. Since 3.12 its
 * answer is a call through the tables of two libraries, so it is asked for once a region.
 *
 * Ownership: borrowed; a thread's state outlives the calls that are on its stack. Threads: GIL held. */
#ifndef DYCL_PY_CPYTHON_THREAD_H
#define DYCL_PY_CPYTHON_THREAD_H

#include "py/cpython/compat.h"

/* NULL: outside of a region. */
extern _Thread_local PyThreadState *dycl_thread_in_region __attribute__((tls_model("initial-exec")));

static inline const PyThreadState *dycl_thread(void) {
    return dycl_thread_in_region ? dycl_thread_in_region : PyThreadState_Get();
}

static inline void dycl_thread_enter(void) { dycl_thread_in_region = PyThreadState_Get(); }
static inline void dycl_thread_leave(void) { dycl_thread_in_region = NULL; }

#endif
