#define _GNU_SOURCE
#include "base/sigstack.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define ROOM (64 * 1024) /* beyond the frame itself: what a handler uses */

_Thread_local int dycl_sigstack_ready __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void remove_stack(void *memory) { /* at the thread's end */
    stack_t now;
    if (sigaltstack(NULL, &now) == 0 && now.ss_sp == memory) {
        now.ss_flags = SS_DISABLE;
        sigaltstack(&now, NULL);
    }
    free(memory);
}

static void make_key(void) { pthread_key_create(&key, remove_stack); }

void dycl_sigstack_make(void) {
    stack_t now;
    dycl_sigstack_ready = 1;
    if (sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
#ifdef _SC_MINSIGSTKSZ
    long least = sysconf(_SC_MINSIGSTKSZ); /* the frame, with this processor's registers */
#else
    long least = MINSIGSTKSZ;
#endif
    stack_t mine = {.ss_size = (size_t)(least > 0 ? least : MINSIGSTKSZ) + ROOM};
    mine.ss_sp = malloc(mine.ss_size); /* not by the allocator table: it lives as long as the thread */
    if (!mine.ss_sp) return;
    pthread_once(&once, make_key);
    if (pthread_setspecific(key, mine.ss_sp) != 0 || sigaltstack(&mine, NULL) != 0) {
        pthread_setspecific(key, NULL);
        free(mine.ss_sp);
    }
}
