/* A stack of its own for signal handlers, for every thread that runs plans.
 *
 * oneDNN's sgemm kernels move the stack pointer into a buffer on the heap. A signal that arrives meanwhile has its
 * frame (11 KiB and more with AMX's registers) written below that buffer: the heap is damaged, seen as aborts some
 * calls later. Handlers that were installed with SA_ONSTACK, as all of CPython's are since 3.10, run on the alternate
 * stack where the thread has one.
 *
 * Ownership: the stack is the thread's and goes with it; one that is there already is left alone. Threads: each for
 * itself. */
#ifndef DYCL_BASE_SIGSTACK_H
#define DYCL_BASE_SIGSTACK_H

extern _Thread_local int dycl_sigstack_ready __attribute__((tls_model("initial-exec")));
void dycl_sigstack_make(void);
static inline void dycl_sigstack_need(void) {
    if (__builtin_expect(!dycl_sigstack_ready, 0)) dycl_sigstack_make();
}

#endif
