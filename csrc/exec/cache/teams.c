#include "exec/cache/teams.h"

#include <omp.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/plan/backend.h"
#include "exec/tune/autotune.h"
#include "exec/plan/step.h"

#define LEAST_NS 5000.0   /* a shorter segment has nothing that is worth a team */
#define MOST_NS  500000.0 /* a longer one is worth it */
enum {
    FIRST_LOOK = 4, /* runs after which the time is looked at; where it speaks against measuring, after NEXT_LOOK times
                       as many again, */
    NEXT_LOOK = 8,
    LAST_LOOK = 256, /* up to this */
    FEW_OF = 4,      /* a variant is a quarter of the threads, */
    MANY = 8,        /* from so many on */
    VARIANTS = 3 + DYCL_MOST_BACKENDS,
    SETS = 16, /* of variants that may come together */
};

typedef struct {
    int threads;
    const dycl_backend *backend; /* NULL: ours */
} choice;

struct dycl_teams {
    dycl_autotune *autotune;
    choice choices[VARIANTS];  /* the first is what a rule would take: ours, all threads */
    dycl_plan *plan[VARIANTS]; /* owned while it is being measured, one reference each */
    int variants, given;       /* given: the variant that ran last */
    uint64_t runs;             /* of that plan, before */
    uint64_t look;             /* not measured yet: at so many runs of the plan */
};

/* What another number of threads left behind. */
struct dycl_other_threads {
    dycl_plan *plan;
    struct dycl_teams *teams;
    int tuned, threads;
};

static void free_teams(struct dycl_teams *t) {
    if (!t) return;
    for (int i = 0; i < VARIANTS; i++) dycl_plan_release(t->plan[i]);
    dycl_autotune_release(t->autotune);
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

static const char *name_of(const choice *w, int all) {
    return w->backend          ? w->backend->name
           : w->threads == all ? "all threads"
           : w->threads == 1   ? "one thread"
                               : "a quarter of the threads";
}

/* Their names, in an array that stays: an autotune outlives its segment. NULL: there are too many. */
static const char *const *names_of(const struct dycl_teams *t) {
    static const char *sets[SETS][VARIANTS];
    const char *names[VARIANTS] = {0};
    for (int i = 0; i < t->variants; i++) names[i] = name_of(&t->choices[i], t->choices[0].threads);
    for (int i = 0; i < SETS; i++) {
        if (!sets[i][0]) memcpy(sets[i], names, sizeof names);
        if (memcmp(sets[i], names, sizeof names) == 0) return sets[i];
    }
    return NULL;
}

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

static void add_variant(struct dycl_teams *t, int threads, const dycl_backend *backend) {
    if (t->variants < VARIANTS) t->choices[t->variants++] = (choice){threads, backend};
}

static void find_variants(dycl_segment *s) {
    struct dycl_teams *t = s->teams;
    double cost = undisturbed(s->plan);
    t->variants = 0;
    add_variant(t, s->threads, NULL);
    if (s->threads > 1 && cost >= LEAST_NS && cost <= MOST_NS && has_parallel_step(s->plan)) {
        add_variant(t, 1, NULL);
        if (s->threads >= MANY) add_variant(t, s->threads / FEW_OF, NULL);
    }
    for (int i = 0; i < dycl_backend_count(); i++)
        if (dycl_backend_at(i)->suits(&s->graph, s->outputs, s->output_count))
            add_variant(t, s->threads, dycl_backend_at(i));
}

static void begin(dycl_segment *s) {
    struct dycl_teams *t = s->teams;
    t->look = t->look * NEXT_LOOK <= LAST_LOOK && has_parallel_step(s->plan) ? t->look * NEXT_LOOK : UINT64_MAX;
    find_variants(s);
    const char *const *names = t->variants > 1 ? names_of(t) : NULL;
    if (!names) return;
    t->given = -1;
    t->autotune = dycl_autotune_get(t->variants, names, s->threads, "segment %016llx", (unsigned long long)s->hash);
    if (!t->autotune) return;
    t->plan[0] = s->plan;
    dycl_plan_retain(s->plan);
}

static dycl_status make_plan(const dycl_segment *s, const choice *w, dycl_plan **out) {
    if (w->backend) return dycl_plan_of_backend(w->backend, &s->graph, s->outputs, s->output_count, out);
    omp_set_num_threads(w->threads);
    dycl_status status = dycl_plan_create(&s->graph, s->outputs, s->output_count, DYCL_PLAN_TUNED, out);
    omp_set_num_threads(s->threads);
    return status;
}

/* The plan of a variant, made when it is first needed. */
static dycl_plan *plan_of(dycl_segment *s, int variant) {
    struct dycl_teams *t = s->teams;
    if (t->plan[variant]) return t->plan[variant];
    if (make_plan(s, &t->choices[variant], &t->plan[variant]) == DYCL_OK) {
        dycl_plan_pack_at_once(t->plan[variant]); /* it comes back */
        return t->plan[variant];
    }
    t->plan[variant] = NULL;
    dycl_autotune_rule_out(t->autotune, variant);
    return t->plan[0];
}

static void take(dycl_segment *s, dycl_plan *plan) {
    if (plan == s->plan) return;
    dycl_plan_retain(plan);
    dycl_plan_release(s->plan);
    s->plan = plan;
}

static void finish(dycl_segment *s, int variant) {
    struct dycl_teams *t = s->teams;
    take(s, plan_of(s, variant));
    for (int i = 0; i < VARIANTS; i++) {
        dycl_plan_release(t->plan[i]);
        t->plan[i] = NULL;
    }
}

void dycl_teams_choose(dycl_segment *s) {
    struct dycl_teams *t = s->teams;
    if (!t) {
        if ((s->threads < 2 && !dycl_backend_count()) || !(t = s->teams = dycl_alloc_zero(sizeof *t))) return;
        t->look = FIRST_LOOK;
    }
    if (!t->plan[0]) { /* decided, or not begun */
        if (t->autotune || s->plan->runs < t->look) return;
        begin(s);
        if (!t->autotune) return;
    }
    if (t->given >= 0 && s->plan->runs == t->runs + 1) /* it ran, and not on the runner thread */
        dycl_autotune_add(t->autotune, t->given, (double)s->plan->samples[t->runs % 8]);
    int variant = dycl_autotune_peek(t->autotune);
    if (atomic_load_explicit(&t->autotune->settled, memory_order_relaxed) >= 0) {
        finish(s, variant);
        return;
    }
    take(s, plan_of(s, variant));
    t->given = s->plan == t->plan[variant] ? variant : -1;
    t->runs = s->plan->runs;
}

const char *dycl_teams_text(const dycl_segment *s) {
    if (!s->teams || !s->teams->autotune)
        return s->threads < 2 ? "one thread" : "as many threads as its steps are worth";
    int variant = atomic_load_explicit(&s->teams->autotune->settled, memory_order_relaxed);
    return variant < 0 ? "being measured" : s->teams->autotune->names[variant];
}
