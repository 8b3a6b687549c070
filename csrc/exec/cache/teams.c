#include "exec/cache/teams.h"

#include <omp.h>

#include "base/alloc.h"
#include "exec/tune/measure.h"
#include "exec/plan/step.h"

#define LEAST_NS 5000.0   /* a shorter segment has nothing that is worth a team */
#define MOST_NS  500000.0 /* a longer one is worth it */
enum {
    FIRST_LOOK = 4, /* runs after which the time is looked at; where it speaks against measuring, after NEXT_LOOK times
                       as many again, */
    NEXT_LOOK = 8,
    LAST_LOOK = 256, /* up to this */
    WAYS = 3,
    FEW_OF = 4, /* the third way is a quarter of the threads, */
    MANY = 8,   /* from so many on */
};

static const char *const names[WAYS] = {"all threads", "one thread", "a quarter of the threads"};

struct dycl_teams {
    dycl_measure *measure;
    dycl_plan *plan[WAYS]; /* owned while it is being measured, one reference each */
    int ways, given;       /* given: the way that ran last */
    uint64_t runs;         /* of that plan, before */
    uint64_t look;         /* not measured yet: at so many runs of the plan */
};

/* What another number of threads left behind. */
struct dycl_other_threads {
    dycl_plan *plan;
    struct dycl_teams *teams;
    int tuned, threads;
};

static void free_teams(struct dycl_teams *t) {
    if (!t) return;
    for (int i = 0; i < WAYS; i++) dycl_plan_release(t->plan[i]);
    dycl_measure_release(t->measure);
    dycl_free(t);
}

void dycl_teams_free(dycl_segment *s) {
    free_teams(s->teams);
    s->teams = NULL;
    if (!s->other) return;
    dycl_plan_release(s->other->plan);
    free_teams(s->other->teams);
    dycl_free(s->other);
    s->other = NULL;
}

dycl_status dycl_teams_follow(dycl_segment *s) {
    int threads = omp_get_max_threads();
    if (__builtin_expect(s->threads == threads, 1)) return DYCL_OK;
    if (s->plan) {
        struct dycl_other_threads now = {s->plan, s->teams, s->tuned, s->threads}, *other = s->other;
        if (!other && !(other = s->other = dycl_alloc_zero(sizeof *other))) return dycl_error_set("out of memory");
        if (other->plan && other->threads != threads) { /* a third number: the oldest goes */
            dycl_plan_release(other->plan);
            free_teams(other->teams);
            *other = (struct dycl_other_threads){0};
        }
        s->plan = other->plan;
        s->teams = other->teams;
        s->tuned = other->tuned;
        *other = now;
    }
    s->threads = threads;
    return DYCL_OK;
}

int dycl_teams_tuned_before(const dycl_segment *s) { return s->other && s->other->tuned; }

static int threads_of(int way, int all) { return way == 0 ? all : way == 1 ? 1 : all / FEW_OF; }

static int has_parallel_step(const dycl_plan *plan) {
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (!plan->infos[i].serial) return 1;
    return 0;
}

/* What a run takes when nobody disturbs it: where others want the cores, a team is what suffers most. */
static double undisturbed(const dycl_plan *plan) {
    double least = plan->estimate;
    int count = plan->runs < 8 ? (int)plan->runs : 8;
    for (int i = 0; i < count; i++) {
        double sample = (double)plan->samples[i];
        if (sample < least) least = sample;
    }
    return least;
}

static void begin(dycl_segment *s) {
    struct dycl_teams *t = s->teams;
    double cost = undisturbed(s->plan);
    t->look = t->look * NEXT_LOOK <= LAST_LOOK && has_parallel_step(s->plan) ? t->look * NEXT_LOOK : UINT64_MAX;
    if (cost < LEAST_NS || cost > MOST_NS || !has_parallel_step(s->plan)) return;
    t->given = -1;
    t->ways = s->threads >= MANY ? WAYS : WAYS - 1;
    t->measure = dycl_measure_get(t->ways, names, s->threads, "segment %016llx", (unsigned long long)s->hash);
    if (!t->measure) return;
    t->plan[0] = s->plan;
    dycl_plan_retain(s->plan);
}

/* The plan of a way, made when it is first needed. */
static dycl_plan *plan_of(dycl_segment *s, int way) {
    struct dycl_teams *t = s->teams;
    if (t->plan[way]) return t->plan[way];
    omp_set_num_threads(threads_of(way, s->threads));
    dycl_status status = dycl_plan_create(&s->graph, s->outputs, s->output_count, DYCL_PLAN_TUNED, &t->plan[way]);
    omp_set_num_threads(s->threads);
    if (status == DYCL_OK) {
        dycl_plan_pack_at_once(t->plan[way]); /* it comes back */
        return t->plan[way];
    }
    t->plan[way] = NULL;
    dycl_measure_rule_out(t->measure, way);
    return t->plan[0];
}

static void take(dycl_segment *s, dycl_plan *plan) {
    if (plan == s->plan) return;
    dycl_plan_retain(plan);
    dycl_plan_release(s->plan);
    s->plan = plan;
}

static void finish(dycl_segment *s, int way) {
    struct dycl_teams *t = s->teams;
    take(s, plan_of(s, way));
    for (int i = 0; i < WAYS; i++) {
        dycl_plan_release(t->plan[i]);
        t->plan[i] = NULL;
    }
}

void dycl_teams_choose(dycl_segment *s) {
    struct dycl_teams *t = s->teams;
    if (!t) {
        if (s->threads < 2 || !(t = s->teams = dycl_alloc_zero(sizeof *t))) return;
        t->look = FIRST_LOOK;
    }
    if (!t->plan[0]) { /* decided, or not begun */
        if (t->measure || s->plan->runs < t->look) return;
        begin(s);
        if (!t->measure) return;
    }
    if (t->given >= 0 && s->plan->runs == t->runs + 1) /* it ran, and not on the runner thread */
        dycl_measure_add(t->measure, t->given, (double)s->plan->samples[t->runs % 8]);
    int way = dycl_measure_peek(t->measure);
    if (atomic_load_explicit(&t->measure->settled, memory_order_relaxed) >= 0) {
        finish(s, way);
        return;
    }
    take(s, plan_of(s, way));
    t->given = s->plan == t->plan[way] ? way : -1;
    t->runs = s->plan->runs;
}

const char *dycl_teams_text(const dycl_segment *s) {
    if (!s->teams || !s->teams->measure)
        return s->threads < 2 ? "one thread" : "as many threads as its steps are worth";
    int way = atomic_load_explicit(&s->teams->measure->settled, memory_order_relaxed);
    return way < 0 ? "being measured" : names[way];
}
