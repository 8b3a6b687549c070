#define _POSIX_C_SOURCE 200809L
#include "exec/tune/autotune.h"

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
    LIMIT = 8192, /* in the table, beyond those that plans hold */
    KEY_ROOM = 512,
    MARGIN = 3,         /* percent that a variant must gain over an earlier one */
    HOPELESS_AFTER = 2, /* tries, */
    HOPELESS = 50,      /* percent slower than the best */
};

static dycl_autotune *bucket[BUCKETS];
static uint32_t count;
static int forced = -1;

static void begin(void) { forced = dycl_env_number("DYCL_MEASURE", DYCL_AUTOTUNE_VARIANTS - 1); }
void dycl_autotune_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
}

uint64_t dycl_clock_ns(void) {
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
        for (dycl_autotune **at = &bucket[i]; *at;) {
            dycl_autotune *m = *at;
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
static int remembered(const char *key, int variants, const char *const *names) {
    char variant[DYCL_PROFILE_VARIANT];
    if (!dycl_profile_recall(key, variant)) return -1;
    for (int i = 0; i < variants; i++)
        if (!strcmp(variant, names[i])) return i;
    return -1;
}

static dycl_autotune *make(uint64_t hash, const char *key, int variants, const char *const *names) {
    size_t length = strlen(key) + 1;
    dycl_autotune *m = dycl_alloc_zero(sizeof *m + length);
    if (!m) return NULL;
    char *text = (char *)(m + 1);
    memcpy(text, key, length);
    m->key = text;
    m->hash = hash;
    m->variants = variants;
    memcpy(m->names, names, (size_t)variants * sizeof *names);
    m->last = variants - 1;
    atomic_init(&m->settled, forced >= 0 ? forced % variants : remembered(key, variants, names));
    m->chain = bucket[hash % BUCKETS];
    bucket[hash % BUCKETS] = m;
    count++;
    return m;
}

dycl_autotune *dycl_autotune_get(int variants, const char *const *names, int threads, const char *format, ...) {
    if (variants < 2 || variants > DYCL_AUTOTUNE_VARIANTS) return NULL;
    char key[KEY_ROOM];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(key, sizeof key, format, list);
    va_end(list);
    if (length >= 0 && length < KEY_ROOM)
        length += snprintf(key + length, (size_t)(KEY_ROOM - length), ", threads %d, %s:", threads,
                           dycl_isa_name(dycl_cpu_isa()));
    for (int i = 0; i < variants && length >= 0 && length < KEY_ROOM; i++)
        length += snprintf(key + length, (size_t)(KEY_ROOM - length), "%s%s", i ? "|" : " ", names[i]);
    if (length < 0 || length >= KEY_ROOM) return NULL; /* cut off, it might be another's */
    uint64_t hash = hash_text(key);
    dycl_autotune_begin();
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    dycl_autotune *m = bucket[hash % BUCKETS];
    while (m && (m->hash != hash || strcmp(m->key, key))) m = m->chain;
    if (!m) {
        if (count >= LIMIT) drop_unused();
        m = make(hash, key, variants, names);
    }
    if (m) m->references++;
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
    return m;
}

void dycl_autotune_release(dycl_autotune *m) {
    if (!m) return;
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    m->references--;
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
}

void dycl_autotune_force(int variant) {
    dycl_autotune_begin();
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    forced = variant;
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
}

void dycl_autotune_clear(void) {
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    drop_unused();
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
}

uint32_t dycl_autotune_count(void) {
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    uint32_t n = count;
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
    return n;
}

/* ---- Measuring */

static uint32_t tries(const dycl_autotune *m, int variant) { return m->runs[variant] ? m->runs[variant] - 1 : 0; }

/* One lucky run does not decide, and runs that were disturbed do not count. */
static float time_of(const dycl_autotune *m, int variant) { return m->times[variant][tries(m, variant) > 1]; }

static void settle(dycl_autotune *m) {
    int best =
        0; /* a variant that is out lost clearly or cannot run; variant 0, when it is out, lost to one that is not */
    for (int i = 1; i < m->variants; i++) {
        if (m->out[i]) continue;
        if (m->out[best] || time_of(m, i) * (100 + MARGIN) < time_of(m, best) * 100) best = i;
    }
    atomic_store_explicit(&m->settled, best, memory_order_relaxed);
}

static void drop_hopeless(dycl_autotune *m) {
    float best = 0;
    for (int i = 0; i < m->variants; i++)
        if (!m->out[i] && tries(m, i) >= HOPELESS_AFTER && (best == 0 || m->times[i][0] < best)) best = m->times[i][0];
    for (int i = 0; i < m->variants; i++)
        if (!m->out[i] && tries(m, i) >= HOPELESS_AFTER && m->times[i][0] * 100 > best * (100 + HOPELESS))
            m->out[i] = 1;
}

static void settle_when_known(dycl_autotune *m) {
    int left = 0, known = 1;
    drop_hopeless(m);
    for (int i = 0; i < m->variants; i++) {
        left += !m->out[i];
        known &= m->out[i] || tries(m, i) >= DYCL_AUTOTUNE_TRIES;
    }
    if (left < 2 || known) settle(m);
}

int dycl_autotune_peek(dycl_autotune *m) {
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    int variant = atomic_load_explicit(&m->settled, memory_order_relaxed);
    if (variant < 0) {
        for (int i = 1; i <= m->variants; i++) { /* in turn, the one that ran least often */
            int next = (m->last + i) % m->variants;
            if (!m->out[next] && (variant < 0 || m->runs[next] < m->runs[variant])) variant = next;
        }
        m->last = variant;
    }
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
    return variant;
}

int dycl_autotune_try(dycl_autotune *m, uint64_t *out_began) {
    int variant = dycl_autotune_peek(m);
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) < 0) *out_began = dycl_clock_ns();
    return variant;
}

void dycl_autotune_note(dycl_autotune *m, int variant, uint64_t began) {
    dycl_autotune_add(m, variant, (double)(dycl_clock_ns() - began));
}

void dycl_autotune_add(dycl_autotune *m, int variant, double nanoseconds) {
    float taken = (float)nanoseconds;
    int settled = -1;
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) < 0) {
        uint32_t n = tries(m, variant);
        if (m->runs[variant]++ && n < DYCL_AUTOTUNE_TRIES) {
            for (; n > 0 && m->times[variant][n - 1] > taken; n--) m->times[variant][n] = m->times[variant][n - 1];
            m->times[variant][n] = taken;
        }
        settle_when_known(m);
        settled = atomic_load_explicit(&m->settled, memory_order_relaxed);
    }
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
    if (settled >= 0) dycl_profile_note(m->key, m->names[settled], time_of(m, settled));
}

void dycl_autotune_rule_out(dycl_autotune *m, int variant) {
    if (!m || variant == 0) return;
    dycl_lock(DYCL_LOCK_AUTOTUNE);
    m->out[variant] = 1;
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) == variant)
        atomic_store_explicit(&m->settled, m->variants == 2 ? 0 : -1, memory_order_relaxed);
    if (atomic_load_explicit(&m->settled, memory_order_relaxed) < 0) settle_when_known(m);
    dycl_unlock(DYCL_LOCK_AUTOTUNE);
}
