#define _POSIX_C_SOURCE 200809L
#include "exec/tune/measure.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/env.h"
#include "base/lock.h"
#include "exec/tune/profile.h"

enum {
    BUCKETS = 1024,
    LIMIT = 8192, /* measures in the table, beyond those that plans hold */
    KEY_ROOM = 512,
    MARGIN = 3,         /* percent that a way must gain over an earlier one */
    HOPELESS_AFTER = 2, /* tries, */
    HOPELESS = 50,      /* percent slower than the best */
};

static dycl_measure *bucket[BUCKETS];
static uint32_t count;
static int forced = -1;

static void begin(void) { forced = dycl_env_number("DYCL_MEASURE", DYCL_MEASURE_WAYS - 1); }
void dycl_measure_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
}

uint64_t dycl_measure_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- The table */

static uint64_t hash_text(const char *text) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++) h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static void drop_unused(void) {
    for (int i = 0; i < BUCKETS; i++)
        for (dycl_measure **at = &bucket[i]; *at;) {
            dycl_measure *m = *at;
            if (m->references) {
                at = &m->chain;
                continue;
            }
            *at = m->chain;
            dycl_free(m);
            count--;
        }
}

/* What an earlier process found out, or -1. */
static int remembered(const char *key, int ways, const char *const *names) {
    char way[DYCL_PROFILE_WAY];
    if (!dycl_profile_recall(key, way)) return -1;
    for (int i = 0; i < ways; i++)
        if (!strcmp(way, names[i])) return i;
    return -1;
}

static dycl_measure *make(uint64_t hash, const char *key, int ways, const char *const *names) {
    size_t length = strlen(key) + 1;
    dycl_measure *m = dycl_alloc_zero(sizeof *m + length);
    if (!m) return NULL;
    char *text = (char *)(m + 1);
    memcpy(text, key, length);
    m->key = text;
    m->hash = hash;
    m->ways = ways;
    m->names = names;
    m->last = ways - 1;
    atomic_init(&m->settled, forced >= 0 ? forced % ways : remembered(key, ways, names));
    m->chain = bucket[hash % BUCKETS];
    bucket[hash % BUCKETS] = m;
    count++;
    return m;
}

dycl_measure *dycl_measure_get(int ways, const char *const *names, int threads, const char *format, ...) {
    if (ways < 2 || ways > DYCL_MEASURE_WAYS) return NULL;
    char key[KEY_ROOM];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(key, sizeof key, format, list);
    va_end(list);
    if (length >= 0 && length < KEY_ROOM)
        length += snprintf(key + length, (size_t)(KEY_ROOM - length), ", threads %d, %s:", threads,
                           dycl_isa_name(dycl_cpu_isa()));
    for (int i = 0; i < ways && length >= 0 && length < KEY_ROOM; i++)
        length += snprintf(key + length, (size_t)(KEY_ROOM - length), "%s%s", i ? "|" : " ", names[i]);
    if (length < 0 || length >= KEY_ROOM) return NULL; /* cut off, it might be another's */
    uint64_t hash = hash_text(key);
    dycl_measure_begin();
    dycl_lock(DYCL_LOCK_MEASURES);
    dycl_measure *m = bucket[hash % BUCKETS];
    while (m && (m->hash != hash || strcmp(m->key, key))) m = m->chain;
    if (!m) {
        if (count >= LIMIT) drop_unused();
        m = make(hash, key, ways, names);
    }
    if (m) m->references++;
    dycl_unlock(DYCL_LOCK_MEASURES);
    return m;
}

void dycl_measure_release(dycl_measure *m) {
    if (!m) return;
    dycl_lock(DYCL_LOCK_MEASURES);
    m->references--;
    dycl_unlock(DYCL_LOCK_MEASURES);
}

void dycl_measure_force(int way) {
    dycl_measure_begin();
    dycl_lock(DYCL_LOCK_MEASURES);
    forced = way;
    dycl_unlock(DYCL_LOCK_MEASURES);
}

void dycl_measure_clear(void) {
    dycl_lock(DYCL_LOCK_MEASURES);
    drop_unused();
    dycl_unlock(DYCL_LOCK_MEASURES);
}

uint32_t dycl_measure_count(void) {
    dycl_lock(DYCL_LOCK_MEASURES);
    uint32_t n = count;
    dycl_unlock(DYCL_LOCK_MEASURES);
    return n;
}

/* ---- Measuring */

static uint32_t tries(const dycl_measure *m, int way) { return m->runs[way] ? m->runs[way] - 1 : 0; }

/* One lucky run does not decide, and runs that were disturbed do not count. */
static float time_of(const dycl_measure *m, int way) { return m->times[way][tries(m, way) > 1]; }

static void settle(dycl_measure *m) {
    int best = 0; /* a way that is out lost clearly or cannot run; way 0, when it is out, lost to one that is not */
    for (int i = 1; i < m->ways; i++) {
        if (m->out[i]) continue;
        if (m->out[best] || time_of(m, i) * (100 + MARGIN) < time_of(m, best) * 100) best = i;
    }
    atomic_store_explicit(&m->settled, best, memory_order_relaxed);
}

static void drop_hopeless(dycl_measure *m) {
    float best = 0;
    for (int i = 0; i < m->ways; i++)
        if (!m->out[i] && tries(m, i) >= HOPELESS_AFTER && (best == 0 || m->times[i][0] < best)) best = m->times[i][0];
    for (int i = 0; i < m->ways; i++)
        if (!m->out[i] && tries(m, i) >= HOPELESS_AFTER && m->times[i][0] * 100 > best * (100 + HOPELESS))
            m->out[i] = 1;
}

static void settle_when_known(dycl_measure *m) {
    int left = 0, known = 1;
    drop_hopeless(m);
    for (int i = 0; i < m->ways; i++) {
        left += !m->out[i];
        known &= m->out[i] || tries(m, i) >= DYCL_MEASURE_TRIES;
    }
    if (left < 2 || known) settle(m);
}

int dycl_measure_peek(dycl_measure *m) {
    dycl_lock(DYCL_LOCK_MEASURES);
    int way = atomic_load_explicit(&m->settled, memory_order_relaxed);
    if (way < 0) {
        for (int i = 1; i <= m->ways; i++) { /* in turn, the one that ran least often */
            int next = (m->last + i) % m->ways;
            if (!m->out[next] && (way < 0 || m->runs[next] < m->runs[way])) way = next;
        }
        m->last = way;
    }
    dycl_unlock(DYCL_LOCK_MEASURES);
    return way;
}

int dycl_measure_try(dycl_measure *m, uint64_t *out_began) {
    int way = dycl_measure_peek(m);
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) < 0) *out_began = dycl_measure_now();
    return way;
}

void dycl_measure_note(dycl_measure *m, int way, uint64_t began) {
    dycl_measure_add(m, way, (double)(dycl_measure_now() - began));
}

void dycl_measure_add(dycl_measure *m, int way, double nanoseconds) {
    float taken = (float)nanoseconds;
    int settled = -1;
    dycl_lock(DYCL_LOCK_MEASURES);
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) < 0) {
        uint32_t n = tries(m, way);
        if (m->runs[way]++ && n < DYCL_MEASURE_TRIES) {
            for (; n > 0 && m->times[way][n - 1] > taken; n--) m->times[way][n] = m->times[way][n - 1];
            m->times[way][n] = taken;
        }
        settle_when_known(m);
        settled = atomic_load_explicit(&m->settled, memory_order_relaxed);
    }
    dycl_unlock(DYCL_LOCK_MEASURES);
    if (settled >= 0) dycl_profile_note(m->key, m->names[settled], time_of(m, settled));
}

void dycl_measure_rule_out(dycl_measure *m, int way) {
    if (!m || way == 0) return;
    dycl_lock(DYCL_LOCK_MEASURES);
    m->out[way] = 1;
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) == way)
        atomic_store_explicit(&m->settled, m->ways == 2 ? 0 : -1, memory_order_relaxed);
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) < 0) settle_when_known(m);
    dycl_unlock(DYCL_LOCK_MEASURES);
}
