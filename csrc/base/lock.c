#define _POSIX_C_SOURCE 200809L
#include "base/lock.h"

#include <assert.h>
#include <pthread.h>

static pthread_mutex_t locks[DYCL_LOCK_COUNT] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static int process = 1; /* written where there is one thread only */

#ifdef DYCL_DEBUG
static _Thread_local unsigned mine; /* a bit for each lock that this thread holds */
#endif

void dycl_lock(dycl_lock_name name) {
#ifdef DYCL_DEBUG
    assert(mine >> name == 0); /* those behind it are not taken */
    mine |= 1u << name;
#endif
    pthread_mutex_lock(&locks[name]);
}

void dycl_unlock(dycl_lock_name name) {
#ifdef DYCL_DEBUG
    mine &= ~(1u << name);
#endif
    pthread_mutex_unlock(&locks[name]);
}

int dycl_lock_process(void) { return process; }

static void before(void) {
    for (int i = 0; i < DYCL_LOCK_COUNT; i++) dycl_lock((dycl_lock_name)i);
}

static void after_in_parent(void) {
    for (int i = DYCL_LOCK_COUNT; i-- > 0;) dycl_unlock((dycl_lock_name)i);
}

static void after_in_child(void) {
    process++;
    after_in_parent();
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before, after_in_parent, after_in_child); }
