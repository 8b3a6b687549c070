#include "exec/cache/backwards.h"

#include <omp.h>
#include <string.h>

#include "base/alloc.h"
#include "ir/infer.h"

static uint64_t graphs_built;

uint64_t dycl_backwards_built(void) { return graphs_built; }

/* ---- Entries */

void dycl_gradients_retain(dycl_gradients *g) { g->references++; }

void dycl_gradients_release(dycl_gradients *g) {
    if (!g || --g->references) return;
    dycl_free(g->tracked);
    dycl_free(g->results);
    dycl_free(g->given);
    dycl_free(g->saved_at);
    dycl_free(g->outputs);
    dycl_backward_free(&g->built);
    dycl_segment_release(g->segment);
    if (g->beside) g->let_go(g->beside);
    dycl_free(g);
}

const char *dycl_gradients_why_not(const dycl_gradients *g) {
    if (g->status == DYCL_OK) return "who differentiates them would need more than is saved";
    dycl_bail why = g->built.recorder.why;
    return why == DYCL_BAIL_grad ? "an operator has no formula for this case" : dycl_bail_text(why);
}

static uint64_t mix(uint64_t h, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++) h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* With one thread torch takes other kernels, whose results lie otherwise (grad/window.c). */
static int one_thread(void) { return omp_get_max_threads() == 1; }

/* Only keeps the comparison short: the key is compared in full. */
static uint64_t hash_of(const dycl_backward_job *job, int ahead) {
    uint64_t h = UINT64_C(0xcbf29ce484222325) + (uint64_t)ahead + 2 * (uint64_t)one_thread();
    h = mix(h, job->results, job->result_count * sizeof *job->results);
    h = mix(h, job->sources, job->source_count * sizeof *job->sources);
    if (job->given) h = mix(h, job->given, job->result_count * sizeof *job->given);
    return job->wanted ? mix(h, job->wanted, job->source_count) : h;
}

static int wants(const dycl_backward_job *job, uint32_t nth) { return !job->wanted || job->wanted[nth]; }

static int is_of(const dycl_gradients *g, const dycl_backward_job *job, int ahead, uint64_t hash) {
    if (g->hash != hash || g->ahead != ahead || g->one_thread != one_thread() || g->result_count != job->result_count ||
        g->source_count != job->source_count ||
        memcmp(g->results, job->results, job->result_count * sizeof *job->results) != 0 ||
        memcmp(g->sources, job->sources, job->source_count * sizeof *job->sources) != 0 ||
        memcmp(g->tracked, job->tracked, job->graph->value_count) != 0 || !g->given != !job->given ||
        (g->given && memcmp(g->given, job->given, job->result_count * sizeof *job->given) != 0))
        return 0;
    for (uint32_t i = 0; i < job->source_count; i++)
        if (g->wanted[i] != wants(job, i)) return 0;
    return 1;
}

static dycl_gradients *new_entry(const dycl_backward_job *job, int ahead, uint64_t hash) {
    dycl_gradients *g = dycl_alloc_zero(sizeof *g);
    if (!g) return NULL;
    dycl_backward_init(&g->built);
    g->references = 1;
    g->hash = hash;
    g->ahead = ahead;
    g->one_thread = one_thread();
    g->result_count = job->result_count;
    g->source_count = job->source_count;
    g->tracked = dycl_alloc((size_t)job->graph->value_count + job->source_count + 1);
    g->results = dycl_alloc(((size_t)job->result_count + job->source_count + 1) * sizeof *g->results);
    g->given = job->given ? dycl_alloc((job->result_count + 1) * sizeof *g->given) : NULL;
    if (!g->tracked || !g->results || (job->given && !g->given)) {
        dycl_gradients_release(g);
        return NULL;
    }
    g->wanted = g->tracked + job->graph->value_count;
    g->sources = g->results + job->result_count;
    if (job->graph->value_count) memcpy(g->tracked, job->tracked, job->graph->value_count);
    for (uint32_t i = 0; i < job->result_count; i++) g->results[i] = job->results[i];
    if (g->given) memcpy(g->given, job->given, job->result_count * sizeof *g->given);
    for (uint32_t i = 0; i < job->source_count; i++) {
        g->sources[i] = job->sources[i];
        g->wanted[i] = (uint8_t)wants(job, i);
    }
    return g;
}

/* ---- What the plan computes */

static int shows_all(const dycl_value *view, const dycl_value *root) {
    return view->offset == 0 && dycl_value_dense(view) && dycl_value_numel(view) == dycl_value_numel(root);
}

static void add_output(dycl_gradients *g, uint32_t value) {
    const dycl_graph *graph = &g->built.recorder.graph;
    uint32_t root = graph->values[value].root;
    for (uint32_t k = 0; k < g->output_count; k++) {
        if (g->outputs[k] != root) continue;
        if (g->looks[k] != value) g->looks[k] = root; /* of several gradients */
        return;
    }
    g->outputs[g->output_count] = root;
    g->looks[g->output_count++] = shows_all(&graph->values[value], &graph->values[root]) ? value : root;
}

static dycl_status choose_outputs(dycl_gradients *g) {
    const dycl_graph *graph = &g->built.recorder.graph;
    g->saved_at = dycl_alloc_zero((g->built.saved_count + 1) * sizeof *g->saved_at);
    g->outputs = dycl_alloc((2 * (size_t)g->source_count + 1) * sizeof *g->outputs);
    if (!g->saved_at || !g->outputs) return dycl_error_set("out of memory for gradients");
    g->looks = g->outputs + g->source_count;
    for (uint32_t i = 0; i < g->source_count; i++) {
        uint32_t value = g->built.gradients[i];
        if (value != DYCL_NONE && graph->values[graph->values[value].root].kind == DYCL_VALUE_NODE)
            add_output(g, value);
    }
    return DYCL_OK;
}

/* A formula that makes what no kernel takes is a mistake of ours: torch computes that gradient. */
static dycl_status verified(dycl_backward *built) {
    if (dycl_graph_verify(&built->recorder.graph) == DYCL_OK) return DYCL_OK;
    return dycl_build_bail(&built->recorder, DYCL_BAIL_grad);
}

static dycl_status build(dycl_gradients *g, const dycl_backward_job *job) {
    graphs_built++;
    g->status = dycl_backward_build(&g->built, job);
    if (g->status == DYCL_OK) g->status = verified(&g->built);
    if (g->status == DYCL_ERROR) return DYCL_ERROR;
    if (g->status == DYCL_BAIL || g->ahead) dycl_backward_trim(&g->built);
    return g->status == DYCL_BAIL || g->ahead ? DYCL_OK : choose_outputs(g);
}

/* ---- Those of a segment */

void dycl_backwards_free(dycl_segment *of) {
    dycl_gradients *g = of->backwards;
    of->backwards = NULL; /* letting go of one may come back here */
    while (g) {
        dycl_gradients *next = g->next;
        dycl_gradients_release(g);
        g = next;
    }
}

static dycl_gradients *find(dycl_segment *of, const dycl_backward_job *job, int ahead, uint64_t hash) {
    for (dycl_gradients **link = &of->backwards; *link; link = &(*link)->next) {
        dycl_gradients *g = *link;
        if (!is_of(g, job, ahead, hash)) continue;
        *link = g->next; /* the most recent one stands first */
        g->next = of->backwards;
        of->backwards = g;
        return g;
    }
    return NULL;
}

static void add(dycl_segment *of, dycl_gradients *g) {
    uint32_t count = 1;
    dycl_gradients_retain(g);
    g->next = of->backwards;
    of->backwards = g;
    for (dycl_gradients **link = &g->next; *link; link = &(*link)->next) {
        if (++count <= DYCL_BACKWARDS_MOST) continue;
        dycl_gradients *last = *link;
        *link = last->next;
        dycl_gradients_release(last);
        return;
    }
}

dycl_status dycl_backwards_get(dycl_segment *of, const dycl_backward_job *job, int ahead, dycl_gradients **out) {
    uint64_t hash = hash_of(job, ahead);
    dycl_gradients *g = of ? find(of, job, ahead, hash) : NULL;
    if (g) {
        dycl_gradients_retain(*out = g);
        return DYCL_OK;
    }
    g = new_entry(job, ahead, hash);
    dycl_status status = g ? build(g, job) : dycl_error_set("out of memory for gradients");
    if (status != DYCL_OK) {
        dycl_gradients_release(g);
        return status;
    }
    if (of && of->cache) add(of, g); /* else nothing would break a circle: it may hold its own segment */
    *out = g;
    return DYCL_OK;
}

dycl_status dycl_gradients_segment(dycl_plan_cache *cache, dycl_gradients *g, dycl_segment **out) {
    dycl_segment *found = NULL;
    if (g->segment) {
        dycl_plan_use(cache, g->segment);
        *out = g->segment;
        return DYCL_OK;
    }
    dycl_status status = dycl_plan_lookup(cache, dycl_gradients_graph(g), g->outputs, (int)g->output_count, &found);
    if (status != DYCL_OK) return status;
    dycl_segment_retain(found);
    dycl_segment_release(g->segment);
    g->segment = *out = found;
    dycl_backward_trim(&g->built);
    return DYCL_OK;
}

void dycl_gradients_numbers(const dycl_gradients *g, const dycl_scalar *numbers, dycl_scalar *out) {
    uint32_t count = dycl_gradients_graph(g)->scalar_count;
    if (count) memcpy(out, g->built.recorder.scalars, count * sizeof *out);
    for (uint32_t i = 0; i < g->built.number_count; i++)
        out[g->built.numbers[i].here] = numbers[g->built.numbers[i].of];
}
