#define _GNU_SOURCE
#include "exec/plan/ahead.h"

#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "exec/plan/step.h"
#include "exec/plan/check.h"
#include "exec/plan/workspace.h"

#define SPINS  2000   /* looks before a thread sleeps: some 20 us */
#define NAP_NS 200000 /* a sleeper looks again by itself: waking is a hint that may get lost */

struct dycl_ahead {
    dycl_plan *plan; /* retained; its busy flag is ours */
    dycl_workspace *workspace;
    dycl_feed *feeds; /* copies, filled as they are published */
    dycl_scalar *scalars;
    void **outputs;
    uint32_t feeds_published, scalars_published; /* written before `nodes` */
    int threads;
    unsigned floats; /* the owner's control word of floating point: does it flush denormals? */
    unsigned generation;
    atomic_uint nodes;  /* how many of the trace are there */
    atomic_uint wanted; /* how many the sleeping runner waits for */
    atomic_int stopped, done;
    dycl_status status; /* when done */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    dycl_ahead *_Atomic job;
    atomic_int runner_sleeps, owner_sleeps;
    atomic_int pausing, working; /* a fork waits until the runner stands between two steps, where it holds no lock */
    int started;
    unsigned generation; /* of processes: a fork has no runner */
} runner = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .finished = PTHREAD_COND_INITIALIZER};

static void before_fork(void) {
    atomic_store(&runner.pausing, 1);
    while (atomic_load(&runner.working)) sched_yield();
}

static void after_fork_in_parent(void) { atomic_store(&runner.pausing, 0); }

static void after_fork_in_child(void) {
    pthread_mutex_init(&runner.lock, NULL);
    pthread_cond_init(&runner.work, NULL);
    pthread_cond_init(&runner.finished, NULL);
    atomic_store(&runner.job, NULL);
    atomic_store(&runner.runner_sleeps, 0);
    atomic_store(&runner.owner_sleeps, 0);
    atomic_store(&runner.pausing, 0);
    runner.started = 0;
    runner.generation++;
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static unsigned float_control(void) {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_ia32_stmxcsr();
#else
    return 0;
#endif
}

static void set_float_control(unsigned word) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_ldmxcsr(word);
#else
    (void)word;
#endif
}

static void nap(pthread_cond_t *condition, atomic_int *sleeps) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NAP_NS;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&runner.lock);
    atomic_store(sleeps, 1);
    pthread_cond_timedwait(condition, &runner.lock, &until);
    atomic_store(sleeps, 0);
    pthread_mutex_unlock(&runner.lock);
}

static void wake(pthread_cond_t *condition, atomic_int *sleeps) {
    if (!atomic_load_explicit(sleeps, memory_order_relaxed)) return;
    pthread_mutex_lock(&runner.lock);
    pthread_cond_signal(condition);
    pthread_mutex_unlock(&runner.lock);
}

static void begin_work(void) {
    for (;;) {
        atomic_store(&runner.working, 1);
        if (!atomic_load(&runner.pausing)) return;
        atomic_store(&runner.working, 0);
        sched_yield();
    }
}

static void end_work(void) { atomic_store(&runner.working, 0); }

/* ---- What a step waits for: the last node of the trace that it or an earlier step computes */

static dycl_status find_needs(dycl_plan *plan) {
    const dycl_program *p = &plan->program;
    uint32_t *of_block = dycl_alloc_zero((p->block_count + 1) * sizeof *of_block);
    uint32_t *needs = dycl_alloc_zero((plan->step_count + 1) * sizeof *needs);
    if (!of_block || !needs) {
        dycl_free(of_block);
        dycl_free(needs);
        return dycl_error_set("out of memory");
    }
    for (uint32_t n = 0; n < p->graph.node_count; n++)
        if (p->block_of[n] != DYCL_NONE) of_block[p->block_of[n]] = n + 1;
    uint32_t next = p->graph.node_count; /* a step of no block serves the one behind it */
    for (uint32_t i = plan->step_count; i-- > 0;) {
        const dycl_step_info *info = &plan->infos[i];
        if (info->group) {
            next = 0;
            for (uint32_t k = 0; k < info->group->count; k++) {
                uint32_t block = info->group->infos[k].block,
                         need = block == DYCL_NONE ? p->graph.node_count : of_block[block];
                if (need > next) next = need;
            }
        } else if (info->block != DYCL_NONE) {
            next = of_block[info->block];
        }
        needs[i] = next;
    }
    for (uint32_t i = 1; i < plan->step_count; i++)
        if (needs[i] < needs[i - 1]) needs[i] = needs[i - 1];
    dycl_free(of_block);
    plan->needs = needs;
    return DYCL_OK;
}

/* ---- The runner */

/* libgomp keeps a team for each thread that asks for one, and lets none of them spin at its barriers once there are
 * more threads than processors: every parallel loop would cost two system calls. So the runner needs a processor that
 * the owner's team leaves free, and where two teams are too many, the one that waits is let go. */
static int may_start(int threads) { return threads < omp_get_num_procs(); }
static int one_team_only(int threads) { return 2 * threads - 1 > omp_get_num_procs(); }
static void let_team_go(void) { omp_pause_resource(omp_pause_soft, omp_get_initial_device()); }

/* 1 when so many nodes are there; 0 when the run was stopped. */
static int wait_for_nodes(dycl_ahead *a, uint32_t count) {
    for (int spins = 0; atomic_load_explicit(&a->nodes, memory_order_acquire) < count; spins++) {
        if (atomic_load_explicit(&a->stopped, memory_order_relaxed)) return 0;
        if (spins < SPINS) {
            relax();
            continue;
        }
        atomic_store(&a->wanted, count);
        nap(&runner.work, &runner.runner_sleeps);
    }
    return !atomic_load_explicit(&a->stopped, memory_order_relaxed);
}

static dycl_status run_steps(dycl_ahead *a) {
    dycl_plan *plan = a->plan;
    const dycl_graph *g = &plan->program.graph;
    uint32_t bound = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        end_work();
        int there = wait_for_nodes(a, plan->needs[i]);
        begin_work();
        if (!there) return DYCL_BAIL;
        for (; bound < a->feeds_published; bound++) plan->slots[g->feeds[bound]] = a->feeds[bound].data;
        dycl_status status = plan->steps[i].run(&plan->steps[i], plan);
        if (status != DYCL_OK) return status;
    }
    end_work();
    int complete = wait_for_nodes(a, UINT32_MAX);
    begin_work();
    return complete ? DYCL_OK : DYCL_BAIL;
}

static dycl_status run(dycl_ahead *a) {
    dycl_plan *plan = a->plan;
    omp_set_num_threads(a->threads);
    set_float_control(a->floats);
    dycl_status status = dycl_plan_open(plan, a->feeds, a->scalars, a->outputs, &a->workspace);
    if (status != DYCL_OK) return status;
    status = run_steps(a);
    if (status == DYCL_OK && plan->suspect) status = DYCL_BAIL;
    dycl_plan_close(plan, a->workspace);
    return status;
}

static void *runner_main(void *unused) {
    (void)unused;
    int team = 0;
    for (int spins = 0;; spins++) {
        dycl_ahead *a = atomic_load_explicit(&runner.job, memory_order_acquire);
        if (a) {
            team = a->threads;
            begin_work();
            a->status = run(a);
            end_work();
            atomic_store(&runner.job, NULL);
            atomic_store_explicit(&a->done, 1, memory_order_release); /* now it is the owner's */
            wake(&runner.finished, &runner.owner_sleeps);
            spins = 0;
        } else if (spins < SPINS) {
            relax();
        } else {
            if (team > 1 && one_team_only(team)) let_team_go();
            team = 0;
            nap(&runner.work, &runner.runner_sleeps);
        }
    }
    return NULL;
}

static int start_runner(void) {
    static int prepared;
    pthread_t thread;
    pthread_attr_t attributes;
    if (runner.started) return 1;
    if (!prepared) pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    prepared = 1;
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    runner.started = pthread_create(&thread, &attributes, runner_main, NULL) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return runner.started;
}

/* ---- The owner's side */

static void free_ahead(dycl_ahead *a) {
    dycl_free(a->feeds);
    dycl_free(a->scalars);
    dycl_free(a->outputs);
    dycl_plan_release(a->plan);
    dycl_free(a);
}

dycl_ahead *dycl_ahead_start(dycl_plan *plan, void *const *outputs) {
    const dycl_graph *g = &plan->program.graph;
    int threads = omp_get_max_threads();
    if (!may_start(threads) || threads != plan->threads || !start_runner() || atomic_load(&runner.job)) return NULL;
    if (threads > 1 && one_team_only(threads)) let_team_go();
    dycl_ahead *a = dycl_alloc_zero(sizeof *a);
    if (!a) return NULL;
    a->floats = float_control();
    a->feeds = dycl_alloc((g->feed_count + 1) * sizeof *a->feeds);
    a->scalars = dycl_alloc((g->scalar_count + 1) * sizeof *a->scalars);
    a->outputs = dycl_alloc(((size_t)plan->program.output_count + 1) * sizeof *a->outputs);
    a->threads = threads;
    a->generation = runner.generation;
    dycl_plan_retain(plan);
    a->plan = plan;
    if (!a->feeds || !a->scalars || !a->outputs || !dycl_claim_take(&plan->busy)) {
        free_ahead(a);
        return NULL;
    }
    if (!plan->needs && find_needs(plan) != DYCL_OK) {
        dycl_claim_give(&plan->busy);
        free_ahead(a);
        return NULL;
    }
    memcpy(a->outputs, outputs, (size_t)plan->program.output_count * sizeof *outputs);
    atomic_store_explicit(&runner.job, a, memory_order_release);
    wake(&runner.work, &runner.runner_sleeps);
    return a;
}

void dycl_ahead_publish(dycl_ahead *a, const dycl_feed *feeds, uint32_t feed_count, const dycl_scalar *scalars,
                        uint32_t scalar_count, uint32_t node_count) {
    for (; a->feeds_published < feed_count; a->feeds_published++)
        a->feeds[a->feeds_published] = feeds[a->feeds_published];
    for (; a->scalars_published < scalar_count; a->scalars_published++)
        a->scalars[a->scalars_published] = scalars[a->scalars_published];
    atomic_store_explicit(&a->nodes, node_count, memory_order_release);
    if (node_count >= atomic_load_explicit(&a->wanted, memory_order_relaxed)) wake(&runner.work, &runner.runner_sleeps);
}

static void wait_until_done(dycl_ahead *a) {
    for (int spins = 0; !atomic_load_explicit(&a->done, memory_order_acquire); spins++) {
        if (a->generation != runner.generation) { /* we are a fork: its runner is in the parent */
            a->status = DYCL_BAIL;
            dycl_claim_give(&a->plan->busy);
            return;
        }
        if (spins < SPINS)
            relax();
        else
            nap(&runner.finished, &runner.owner_sleeps);
    }
}

dycl_status dycl_ahead_finish(dycl_ahead *a, const dycl_feed *feeds, const dycl_scalar *scalars) {
    const dycl_graph *g = &a->plan->program.graph;
    dycl_ahead_publish(a, feeds, g->feed_count, scalars, g->scalar_count, UINT32_MAX);
    wait_until_done(a);
    dycl_status status = a->status;
    if (status == DYCL_OK && a->plan->check &&
        dycl_check_outputs(a->plan, a->feeds, a->scalars, a->outputs) == DYCL_ERROR) {
        fprintf(stderr, "dycl, computed ahead: %s\n", dycl_error_message());
        abort(); /* as a bail it would be computed again, and nobody would know */
    }
    free_ahead(a);
    return status == DYCL_OK ? DYCL_OK : DYCL_BAIL;
}

void dycl_ahead_stop(dycl_ahead *a) { atomic_store(&a->stopped, 1); }

void dycl_ahead_cancel(dycl_ahead *a) {
    dycl_ahead_stop(a);
    wake(&runner.work, &runner.runner_sleeps);
    wait_until_done(a);
    free_ahead(a);
}
