#include "py/cpython/collect.h"

#include <pthread.h>

#include "py/cpython/compat.h"

static int held, enabled;
static _Thread_local int mine __attribute__((tls_model("initial-exec"))); /* of `held`: this thread's */

static void hold(int levels) {
    int was = PyGC_Disable();
    enabled = held ? enabled | was : was; /* the program may have enabled it meanwhile */
    held += levels;
    mine += levels;
}

static void release(int levels) {
    held -= levels;
    mine -= levels;
    if (held == 0 && enabled) PyGC_Enable();
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
        if (held == 0 && enabled) PyGC_Enable();
    }
}

int dycl_collect_setup(void) { return pthread_atfork(NULL, NULL, after_fork); }
