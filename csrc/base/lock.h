/* Every lock of the core, in the order in which they may be taken one inside another. A program may fork while another
 * thread holds some: the thread that forks takes them all first, in this order, so that in the child nobody holds one
 * and what they guard is whole.
 *
 * The process's number tells what threads of the parent left behind: a plan that was running there runs no more in the
 * child.
 *
 * Ownership: none. Threads: any. */
#ifndef DYCL_BASE_LOCK_H
#define DYCL_BASE_LOCK_H

#include <stdatomic.h>

typedef enum {
    DYCL_LOCK_PACK,       /* exec/pack/pack.c */
    DYCL_LOCK_LAYOUTS,    /* dnnl/layout.c */
    DYCL_LOCK_PRIMITIVES, /* dnnl/cache.c */
    DYCL_LOCK_AUTOTUNE,   /* exec/tune/autotune.c */
    DYCL_LOCK_PROFILE,    /* exec/tune/profile.c */
    DYCL_LOCK_ENV,        /* base/env.c */
    DYCL_LOCK_LOG,        /* opt/log.c */
    DYCL_LOCK_PAGES,      /* base/pages.c */
    DYCL_LOCK_HEAP,       /* base/heap.c */
    DYCL_LOCK_COUNT
} dycl_lock_name;

void dycl_lock(dycl_lock_name name);
void dycl_unlock(dycl_lock_name name);

int dycl_lock_process(void); /* 1, and one more after each fork */

/* A thing that one run at a time may use, and that a thread which a fork left behind does not keep. 0: free. */
typedef atomic_int dycl_claim;
static inline int dycl_claim_take(dycl_claim *claim) { /* 1, or 0: it is taken */
    int process = dycl_lock_process(), before = atomic_load_explicit(claim, memory_order_relaxed);
    return before != process && atomic_compare_exchange_strong(claim, &before, process);
}
static inline void dycl_claim_give(dycl_claim *claim) { atomic_store_explicit(claim, 0, memory_order_release); }

#endif
