/* Steps that can do the same thing in several ways (algorithms, packed or not, one thread or all): which one is taken,
 * by measurement at run time.
 *
 * The ways of a key (operator, shapes, strides, thread count, ISA) are tried in turn by the runs that happen anyway, so
 * caches and the other threads are as they will be: the first run of each is a warm-up (it packs, makes code, touches
 * memory for the first time), then the second fastest of DYCL_MEASURE_TRIES counts. A way that is hopeless is not tried
 * to the end. From then on asking costs a load and a compare. All plans of the process share what one of them found
 * out. Every way must be right: any run may be any of them.
 *
 *     uint64_t began;
 *     int way = dycl_measure_next(m, &began);
 *     ... run it ...
 *     if (began) dycl_measure_note(m, way, began);
 *
 * Way 0 is what a rule would choose; another has to be faster by a margin.
 *
 * Ownership: measures are reference counted; the process-wide table keeps those that nobody holds, up to a limit.
 * Threads: any. */
#ifndef DYCL_EXEC_TUNE_MEASURE_H
#define DYCL_EXEC_TUNE_MEASURE_H

#include <stdatomic.h>
#include <stdint.h>

#define DYCL_MEASURE_WAYS  6 /* at most */
#define DYCL_MEASURE_TRIES 5 /* of each way, after its warm-up */

typedef struct dycl_measure {
    atomic_int settled; /* the way to take; -1: not known yet */
    int ways;
    const char *const *names; /* static */
    const char *key;          /* with thread count, ISA and names */
    uint64_t hash;
    /* below: under the table's lock */
    uint32_t references;
    uint32_t runs[DYCL_MEASURE_WAYS];                   /* noted, the warm-up included */
    float times[DYCL_MEASURE_WAYS][DYCL_MEASURE_TRIES]; /* nanoseconds, ascending */
    uint8_t out[DYCL_MEASURE_WAYS];                     /* not to be tried any more */
    int last;                                           /* the way given out last */
    struct dycl_measure *chain;
} dycl_measure;

/* The measure of a key, made when it is new. names: static texts, one a way, which tell the ways apart in explain and
 * in the profile. The key says all that the times depend on but the ISA and the thread count, which are added. NULL:
 * out of memory, or one way only: take way 0. */
dycl_measure *dycl_measure_get(int ways, const char *const *names, int threads, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void dycl_measure_release(dycl_measure *measure); /* NULL is allowed */

int dycl_measure_try(dycl_measure *measure, uint64_t *out_began);
/* The way of this run. *out_began is 0 when it need not be noted; NULL measures nothing and answers way 0. */
static inline int dycl_measure_next(dycl_measure *measure, uint64_t *out_began) {
    *out_began = 0;
    if (!measure) return 0;
    int settled = atomic_load_explicit(&measure->settled, memory_order_relaxed);
    return __builtin_expect(settled >= 0, 1) ? settled : dycl_measure_try(measure, out_began);
}
static inline int dycl_measure_is(const dycl_measure *measure, int way) {
    return atomic_load_explicit(&measure->settled, memory_order_relaxed) == way;
}
void dycl_measure_note(dycl_measure *measure, int way, uint64_t began);
/* The same where the time is known anyway: the way to take next, settled or not, and what a run of one took. */
int dycl_measure_peek(dycl_measure *measure);
void dycl_measure_add(dycl_measure *measure, int way, double nanoseconds);
void dycl_measure_rule_out(dycl_measure *measure, int way); /* it cannot run here. Way 0 always can. */

uint64_t dycl_measure_now(void); /* nanoseconds */
uint32_t dycl_measure_count(void);

void dycl_measure_begin(void); /* reads DYCL_MEASURE; making a measure does it too */

/* Tests: every measure made from now on is settled on this way (modulo its ways); -1: as measured. DYCL_MEASURE=0, 1...
 * in the environment does the same. */
void dycl_measure_force(int way);
void dycl_measure_clear(void); /* forgets every measure that nobody holds */

#endif
