/* The part of an OpenMP runtime that our code and oneDNN ask for, on pthreads, for the thread sanitizer: it cannot see
 * how libgomp's threads wait for one another and takes every parallel region for a race. Here a region is threads that
 * are made and joined, a barrier and a critical section are pthread's, so that it knows what comes before what, and
 * only that. oneDNN calls these functions too, as the program's come before a library's.
 *
 * What a test sees: teams of as many threads as asked for, on a machine of PROCESSORS processors, nested regions on one
 * thread. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROCESSORS = 4, MOST = 64, LOOPS = 8 };

#define PUBLIC __attribute__((visibility("default")))

typedef struct {
    _Atomic(long) next; /* first iteration that nobody has; of a dynamic loop that the team is in */
    atomic_int ready;   /* 0: nobody was here, 1: somebody sets it up, 2: it is */
} loop;

typedef struct team {
    void (*work)(void *);
    void *data;
    int count;
    pthread_barrier_t barrier;
    pthread_t threads[MOST];
    struct member *members;
    loop loops[LOOPS];
} team;

typedef struct member {
    team *team;
    int id;
    unsigned loops; /* that this thread has begun */
    loop *in;
    long end, step, chunk; /* of that loop */
    struct member *outer;
} member;

static _Thread_local member *current;
static _Thread_local int wanted; /* omp_set_num_threads; 0: as the program was started */

static void fail(const char *what) {
    fprintf(stderr, "openmp.c: %s\n", what);
    abort();
}

PUBLIC int omp_get_num_procs(void) { return PROCESSORS; }
PUBLIC int omp_get_max_threads(void) {
    const char *said = getenv("OMP_NUM_THREADS");
    return wanted ? wanted : said && atoi(said) > 0 ? atoi(said) : PROCESSORS;
}
PUBLIC void omp_set_num_threads(int count) { wanted = count > 0 ? count : 1; }
PUBLIC int omp_get_num_threads(void) { return current ? current->team->count : 1; }
PUBLIC int omp_get_thread_num(void) { return current ? current->id : 0; }
PUBLIC int omp_in_parallel(void) { return current && current->team->count > 1; }
PUBLIC int omp_get_initial_device(void) { return 0; }
PUBLIC int omp_pause_resource(int kind, int device) {
    (void)kind;
    (void)device;
    return 0;
}

/* ---- Regions */

static void *thread_main(void *argument) {
    member *me = argument;
    current = me;
    me->team->work(me->team->data);
    return NULL;
}

PUBLIC void GOMP_parallel_start(void (*work)(void *), void *data, unsigned count) {
    team *t = calloc(1, sizeof *t);
    if (!t) fail("no memory");
    int threads = count ? (int)count : omp_get_max_threads();
    t->count = omp_in_parallel() ? 1 : threads < MOST ? threads : MOST;
    t->work = work;
    t->data = data;
    t->members = calloc((size_t)t->count, sizeof *t->members);
    if (!t->members || pthread_barrier_init(&t->barrier, NULL, (unsigned)t->count) != 0) fail("no memory");
    for (int i = 0; i < t->count; i++) t->members[i] = (member){.team = t, .id = i};
    t->members[0].outer = current;
    current = &t->members[0];
    for (int i = 1; i < t->count; i++)
        if (pthread_create(&t->threads[i], NULL, thread_main, &t->members[i]) != 0) fail("no thread");
}

PUBLIC void GOMP_parallel_end(void) {
    team *t = current->team;
    for (int i = 1; i < t->count; i++) pthread_join(t->threads[i], NULL);
    current = current->outer;
    pthread_barrier_destroy(&t->barrier);
    free(t->members);
    free(t);
}

PUBLIC void GOMP_parallel(void (*work)(void *), void *data, unsigned count, unsigned flags) {
    (void)flags;
    GOMP_parallel_start(work, data, count);
    work(data);
    GOMP_parallel_end();
}

PUBLIC void GOMP_barrier(void) {
    if (current) pthread_barrier_wait(&current->team->barrier);
}

/* One mutex for all names: the name is the linker's, and a critical section holds no other. */
static pthread_mutex_t critical = PTHREAD_MUTEX_INITIALIZER;
PUBLIC void GOMP_critical_name_start(void **name) {
    (void)name;
    pthread_mutex_lock(&critical);
}
PUBLIC void GOMP_critical_name_end(void **name) {
    (void)name;
    pthread_mutex_unlock(&critical);
}

/* ---- Loops; all of ours and oneDNN's count upwards */

PUBLIC bool GOMP_loop_nonmonotonic_dynamic_next(long *out_start, long *out_end) {
    member *me = current;
    long start = atomic_fetch_add_explicit(&me->in->next, me->chunk * me->step, memory_order_relaxed);
    if (start >= me->end) return false;
    *out_start = start;
    *out_end = start + me->chunk * me->step < me->end ? start + me->chunk * me->step : me->end;
    return true;
}

PUBLIC bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *out_start,
                                                 long *out_end) {
    member *me = current;
    if (!me) fail("a loop outside of any region");
    if (step <= 0) fail("a loop that counts downwards");
    if (me->loops >= LOOPS) fail("more loops in a region than this knows");
    loop *l = &me->team->loops[me->loops++];
    int nobody = 0;
    if (atomic_compare_exchange_strong(&l->ready, &nobody, 1)) {
        atomic_store_explicit(&l->next, start, memory_order_relaxed);
        atomic_store_explicit(&l->ready, 2, memory_order_release);
    }
    while (atomic_load_explicit(&l->ready, memory_order_acquire) != 2) {
    }
    me->in = l;
    me->end = end;
    me->step = step;
    me->chunk = chunk;
    return GOMP_loop_nonmonotonic_dynamic_next(out_start, out_end);
}

/* A thread's share in one piece; a chunk is not asked for. */
PUBLIC bool GOMP_loop_static_start(long start, long end, long step, long chunk, long *out_start, long *out_end) {
    if (chunk || step <= 0) fail("a static loop with chunks");
    long count = end > start ? (end - start + step - 1) / step : 0, team_size = omp_get_num_threads(),
         id = omp_get_thread_num();
    long each = count / team_size, more = count % team_size, first = each * id + (id < more ? id : more),
         last = first + each + (id < more);
    *out_start = start + first * step;
    *out_end = start + last * step < end ? start + last * step : end;
    return first < last;
}
PUBLIC bool GOMP_loop_static_next(long *out_start, long *out_end) {
    (void)out_start;
    (void)out_end;
    return false;
}

PUBLIC void GOMP_loop_end_nowait(void) {}
PUBLIC void GOMP_loop_end(void) { GOMP_barrier(); }
