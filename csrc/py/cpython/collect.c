#include "py/cpython/collect.h"

#include "py/cpython/compat.h" /* first: it says which names of the system there are */

#include <pthread.h>

#if DYCL_KNOWS_COLLECTOR
#undef _PyGC_FINALIZED /* the header that is asked has it again */
#define Py_BUILD_CORE 1
#include "internal/pycore_interp.h"
#endif

static int *known; /* whether the collector is enabled: a section begins and ends at each operator; NULL: unknown */
static int held, enabled;
static _Thread_local int mine __attribute__((tls_model("initial-exec"))); /* of `held`: this thread's */

static int disable(void) {
    if (__builtin_expect(!known, 0)) return PyGC_Disable();
    int was = *known;
    *known = 0;
    return was;
}

static void enable(void) {
    if (__builtin_expect(!known, 0))
        PyGC_Enable();
    else
        *known = 1;
}

static void hold(int levels) {
    int was = disable();
    enabled = held ? enabled | was : was; /* the program may have enabled it meanwhile */
    held += levels;
    mine += levels;
}

static void release(int levels) {
    held -= levels;
    mine -= levels;
    if (held == 0 && enabled) enable();
}

void dycl_collect_hold(void) { hold(1); }
void dycl_collect_release(void) { release(1); }

int dycl_collect_suspend(void) {
    int levels = mine;
    if (levels) release(levels);
    return levels;
}

void dycl_collect_resume(int levels) {
    if (levels) hold(levels);
}

/* Of the threads, only the one that forked is there. */
static void after_fork(void) {
    if (held != mine) {
        held = mine;
        if (held == 0 && enabled) enable();
    }
}

/* What is known is proven here: the number follows the functions. */
static void look_for_the_number(void) {
#if DYCL_KNOWS_COLLECTOR
    int *number = &PyInterpreterState_Get()->gc.enabled, was = PyGC_Disable(), follows = *number == 0;
    PyGC_Enable();
    follows &= *number == 1;
    if (!was) PyGC_Disable();
    known = follows && DYCL_KNOW(DYCL_KNOWS_COLLECTOR) ? number : NULL;
#endif
}

int dycl_collect_setup(void) {
    look_for_the_number();
    return pthread_atfork(NULL, NULL, after_fork);
}
