/* Steps that can do the same thing in several variants (algorithms, packed or not, one thread or all): which one is
 * taken, by measurement at run time.
 *
 * The variants of a key (operator, shapes, strides, thread count, ISA) are tried in turn by the runs that happen
 * anyway, so caches and the other threads are as they will be: the first run of each is a warm-up (it packs, makes
 * code, touches memory for the first time), then the second fastest of DYCL_AUTOTUNE_TRIES counts. A variant that is
 * hopeless is not tried to the end. From then on asking costs a load and a compare. All plans of the process share what
 * one of them found out. Every variant must be right: any run may be any of them.
 *
 *     uint64_t began;
 *     int variant = dycl_autotune_next(m, &began);
 *     ... run it ...
 *     if (began) dycl_autotune_note(m, variant, began);
 *
 * Way 0 is what a rule would choose; another has to be faster by a margin.
 *
 * Ownership: reference counted; the process-wide table keeps those that nobody holds, up to a limit.
 * Threads: any. */
#ifndef DYCL_EXEC_TUNE_AUTOTUNE_H
#define DYCL_EXEC_TUNE_AUTOTUNE_H

#include <stdatomic.h>
#include <stdint.h>

#define DYCL_AUTOTUNE_VARIANTS 6 /* at most */
#define DYCL_AUTOTUNE_TRIES    5 /* of each variant, after its warm-up */

typedef struct dycl_autotune {
    atomic_int settled; /* the variant to take; -1: not known yet */
    int variants;
    const char *names[DYCL_AUTOTUNE_VARIANTS]; /* static texts */
    const char *key;                           /* with thread count, ISA and names */
    uint64_t hash;
    /* below: under the table's lock */
    uint32_t references;
    uint32_t runs[DYCL_AUTOTUNE_VARIANTS];                    /* noted, the warm-up included */
    float times[DYCL_AUTOTUNE_VARIANTS][DYCL_AUTOTUNE_TRIES]; /* nanoseconds, ascending */
    uint8_t out[DYCL_AUTOTUNE_VARIANTS];                      /* not to be tried any more */
    int last;                                                 /* the variant given out last */
    struct dycl_autotune *chain;
} dycl_autotune;

/* That of a key, made when it is new. names: static texts, one a variant, which tell the variants apart in explain and
 * in the profile. The key says all that the times depend on but the ISA and the thread count, which are added. NULL:
 * out of memory, or one variant only: take variant 0. */
dycl_autotune *dycl_autotune_get(int variants, const char *const *names, int threads, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void dycl_autotune_release(dycl_autotune *autotune); /* NULL is allowed */

int dycl_autotune_try(dycl_autotune *autotune, uint64_t *out_began);
/* The variant of this run. *out_began is 0 when it need not be noted; NULL measures nothing and answers variant 0. */
static inline int dycl_autotune_next(dycl_autotune *autotune, uint64_t *out_began) {
    *out_began = 0;
    if (!autotune) return 0;
    int settled = atomic_load_explicit(&autotune->settled, memory_order_relaxed);
    return __builtin_expect(settled >= 0, 1) ? settled : dycl_autotune_try(autotune, out_began);
}
static inline int dycl_autotune_is(const dycl_autotune *autotune, int variant) {
    return atomic_load_explicit(&autotune->settled, memory_order_relaxed) == variant;
}
void dycl_autotune_note(dycl_autotune *autotune, int variant, uint64_t began);
/* The same where the time is known anyway: the variant to take next, settled or not, and what a run of one took. */
int dycl_autotune_peek(dycl_autotune *autotune);
void dycl_autotune_add(dycl_autotune *autotune, int variant, double nanoseconds);
void dycl_autotune_rule_out(dycl_autotune *autotune, int variant); /* it cannot run here. Variant 0 always can. */

uint64_t dycl_clock_ns(void); /* nanoseconds */
uint32_t dycl_autotune_count(void);

void dycl_autotune_begin(void); /* reads DYCL_MEASURE; making one does it too */

/* Tests: each one made from now on is settled on this variant (modulo its variants); -1: as measured.
 * DYCL_MEASURE=0, 1... in the environment does the same. */
void dycl_autotune_force(int variant);
void dycl_autotune_clear(void); /* forgets each one that nobody holds */

#endif
