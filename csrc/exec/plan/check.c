#include "exec/plan/check.h"

#include "base/alloc.h"
#include "check/reference.h"
#include "check/zone.h"
#include "exec/plan/step.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define POISON 0xff /* a NaN, or -1 */

/* A place in the workspace, or memory that the plan keeps: from step `first` to `last`, as the steps are run. */
typedef struct {
    uint32_t slot, first, last;
    size_t bytes;
    int kept;
} checked_place;

struct dycl_check {
    dycl_graph graph; /* as it was recorded: passes change the plan's own */
    uint32_t *outputs;
    int output_count;
    checked_place *places;
    uint32_t place_count;
};

dycl_check *dycl_check_create(const dycl_graph *graph, const uint32_t *outputs, int output_count) {
    if (!dycl_check_enabled()) return NULL;
    dycl_check *c = dycl_alloc_zero(sizeof *c);
    if (!c) return NULL;
    dycl_graph_init(&c->graph);
    c->outputs = dycl_alloc((size_t)output_count * sizeof *c->outputs + 1);
    c->output_count = output_count;
    if (!c->outputs || dycl_graph_copy(&c->graph, graph) != DYCL_OK) {
        dycl_check_free(c);
        return NULL;
    }
    c->graph.options = graph->options;
    memcpy(c->outputs, outputs, (size_t)output_count * sizeof *outputs);
    return c;
}

void dycl_check_free(dycl_check *c) {
    if (!c) return;
    dycl_graph_free(&c->graph);
    dycl_free(c->outputs);
    dycl_free(c->places);
    dycl_free(c);
}

/* ---- Red zones */

/* Steps were numbered before some of them were put side by side. */
static uint32_t run_of(const dycl_plan *plan, uint32_t step) {
    uint32_t i = 0;
    for (uint32_t before = 0; i < plan->step_count; i++) {
        before += plan->infos[i].group ? plan->infos[i].group->count : 1;
        if (step < before) break;
    }
    return i;
}

dycl_status dycl_check_lay_out(dycl_plan *plan, const dycl_slot *slots, uint32_t count) {
    dycl_check *c = plan->check;
    if (!c) return DYCL_OK;
    c->places = dycl_alloc_zero((count + 1) * sizeof *c->places);
    uint32_t *place_of = dycl_alloc((count + 1) * sizeof *place_of);
    if (!c->places || !place_of) {
        dycl_free(place_of);
        return dycl_error_set("out of memory");
    }
    for (uint32_t s = 0; s < count; s++) {
        const dycl_slot *slot = &slots[s];
        place_of[s] = DYCL_NONE;
        if (slot->first == DYCL_NONE || (slot->fixed && !slot->keep) || slot->share != DYCL_NONE) continue;
        place_of[s] = c->place_count;
        c->places[c->place_count++] =
            (checked_place){s, run_of(plan, slot->first), run_of(plan, slot->last), slot->bytes, slot->keep != NULL};
    }
    for (uint32_t s = 0; s < count; s++) { /* who takes over a place prolongs its life */
        uint32_t owner = s;
        while (slots[owner].share != DYCL_NONE) owner = slots[owner].share;
        if (owner == s || place_of[owner] == DYCL_NONE) continue;
        uint32_t last = run_of(plan, slots[s].last);
        if (c->places[place_of[owner]].last < last) c->places[place_of[owner]].last = last;
    }
    dycl_free(place_of);
    return DYCL_OK;
}

static void begin_step(const dycl_plan *plan, uint32_t step) {
    const dycl_check *c = plan->check;
    for (uint32_t i = 0; i < c->place_count; i++) {
        const checked_place *p = &c->places[i];
        if (p->first != step || p->kept) continue;
        memset(plan->slots[p->slot], POISON, p->bytes);
        dycl_check_mark((char *)plan->slots[p->slot] + p->bytes);
    }
}

static dycl_status blame(const dycl_plan *plan, uint32_t step, const char *what, uint32_t number) {
    const dycl_step_info *info = &plan->infos[step];
    const dycl_program *p = &plan->program;
    const char *op =
        info->block == DYCL_NONE ? "" : dycl_op_get((dycl_op)p->graph.nodes[p->looks[info->block].first].op)->name;
    return dycl_error_set("check: step %u (%s, for %s) wrote behind %s %u", step, info->kernel, op, what, number);
}

static dycl_status end_step(const dycl_plan *plan, uint32_t step, void *const *outputs) {
    const dycl_check *c = plan->check;
    for (uint32_t i = 0; i < c->place_count; i++) {
        const checked_place *p = &c->places[i];
        int lives = p->kept || (p->first <= step && step <= p->last);
        if (lives && !dycl_check_untouched((const char *)plan->slots[p->slot] + p->bytes))
            return blame(plan, step, "slot", p->slot);
    }
    for (int i = 0; i < c->output_count; i++) {
        const dycl_value *v = &c->graph.values[c->outputs[i]];
        size_t bytes = dycl_value_bytes(v);
        if (!dycl_check_untouched((const char *)outputs[i] + bytes)) return blame(plan, step, "output", (uint32_t)i);
    }
    return DYCL_OK;
}

/* ---- Running into outputs with red zones behind them */

static uint64_t digest(const void *memory, size_t bytes) {
    const unsigned char *p = memory;
    uint64_t h = bytes;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t digest_feeds(const dycl_plan *plan, const dycl_feed *feeds) {
    const dycl_graph *g = &plan->check->graph;
    uint64_t h = 0;
    for (uint32_t i = 0; i < g->feed_count; i++) {
        const dycl_value *v = &g->values[g->feeds[i]];
        h = h * 31 + digest(feeds[i].data, dycl_value_bytes(v));
    }
    return h;
}

static size_t output_bytes(const dycl_check *c, int i) {
    const dycl_value *v = &c->graph.values[c->outputs[i]];
    return dycl_value_bytes(v);
}

static dycl_status run_steps(dycl_plan *plan, void *const *outputs) {
    dycl_status status = DYCL_OK;
    for (uint32_t i = 0; i < plan->step_count && status == DYCL_OK; i++) {
        begin_step(plan, i);
        uint64_t before = dycl_clock_ns();
        status = plan->steps[i].run(&plan->steps[i], plan);
        if (dycl_plan_timing()) dycl_plan_step_took(plan, i, dycl_clock_ns() - before); /* without the checks */
        if (status == DYCL_OK) status = end_step(plan, i, outputs);
    }
    return status;
}

dycl_status dycl_check_run(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs) {
    const dycl_check *c = plan->check;
    void **shadow = dycl_alloc_zero((size_t)(c->output_count + 1) * sizeof *shadow);
    dycl_status status = shadow ? DYCL_OK : dycl_error_set("out of memory");
    (void)scalars;
    for (int i = 0; i < c->output_count && status == DYCL_OK; i++) {
        size_t bytes = output_bytes(c, i);
        shadow[i] = dycl_aligned_alloc(bytes + DYCL_RED_ZONE);
        if (!shadow[i]) {
            status = dycl_error_set("out of memory");
            break;
        }
        memset(shadow[i], POISON, bytes);
        dycl_check_mark((char *)shadow[i] + bytes);
        plan->slots[c->outputs[i]] = shadow[i];
    }
    uint64_t before = status == DYCL_OK ? digest_feeds(plan, feeds) : 0;
    if (status == DYCL_OK) status = run_steps(plan, shadow);
    if (status == DYCL_OK && digest_feeds(plan, feeds) != before)
        status = dycl_error_set("check: a plan wrote into what feeds it");
    for (int i = 0; shadow && i < c->output_count; i++) {
        if (status == DYCL_OK) memcpy(outputs[i], shadow[i], output_bytes(c, i));
        dycl_aligned_free(shadow[i]);
    }
    dycl_free(shadow);
    return status;
}

/* ---- Against the reference */

static void element_text(dycl_dtype dtype, const void *memory, int64_t at, char *out, size_t room) {
    dycl_number x = dycl_number_load(dtype, memory, at);
    if (dycl_dtype_is_float(dtype))
        snprintf(out, room, "%.9g", x.f);
    else
        snprintf(out, room, "%lld", (long long)(dtype == DYCL_BOOL ? ((const uint8_t *)memory)[at] : x.i));
}

static dycl_status compare(const dycl_plan *plan, const dycl_reference *r, int i, const void *memory) {
    const dycl_check *c = plan->check;
    const dycl_value *v = &c->graph.values[c->outputs[i]];
    dycl_dtype dtype = (dycl_dtype)v->dtype;
    int64_t extent = dycl_value_extent(v), wrong = 0, first = -1;
    for (int64_t at = 0; at < extent; at++)
        if (!dycl_number_accepts(dtype, r->elements[c->outputs[i]][at], memory, at)) {
            if (first < 0) first = at;
            wrong++;
        }
    if (first < 0) return DYCL_OK;
    dycl_number want = r->elements[c->outputs[i]][first];
    const dycl_node *node = &c->graph.nodes[v->source];
    char got[40], *steps = NULL;
    element_text(dtype, memory, first, got, sizeof got);
    if (dycl_plan_describe(plan, &steps) == DYCL_OK) fprintf(stderr, "%s", steps);
    dycl_free(steps);
    if (dycl_graph_print(&c->graph, &steps) == DYCL_OK) fprintf(stderr, "%s", steps);
    dycl_free(steps);
    return dycl_error_set("check: output %d (%s of %s) is wrong in %lld of %lld elements: the one at %lld is %s, by "
                          "definition %.9g (%lld) within %.3g",
                          i, dycl_dtype_name(dtype), dycl_op_get((dycl_op)node->op)->name, (long long)wrong,
                          (long long)extent, (long long)first, got, want.f, (long long)want.i, want.error);
}

dycl_status dycl_check_outputs(dycl_plan *plan, const dycl_feed *feeds, const dycl_scalar *scalars,
                               void *const *outputs) {
    const dycl_check *c = plan->check;
    const dycl_graph *g = &c->graph;
    dycl_reference r;
    if (dycl_reference_work(g, c->outputs, c->output_count) > dycl_check_work()) return DYCL_OK;
    const void **memory = dycl_alloc((g->feed_count + 1) * sizeof *memory);
    if (!memory) return dycl_error_set("out of memory");
    for (uint32_t i = 0; i < g->feed_count; i++) memory[i] = feeds[i].data;
    dycl_status status =
        dycl_reference_run(&r, g, c->outputs, c->output_count, &(dycl_reference_inputs){memory, scalars});
    dycl_free(memory);
    if (status == DYCL_BAIL) return DYCL_OK; /* no definition */
    if (status != DYCL_OK) return status;
    for (int i = 0; i < c->output_count && status == DYCL_OK; i++) status = compare(plan, &r, i, outputs[i]);
    dycl_reference_free(&r);
    return status;
}
