#include "exec/tile/in_place.h"

#include <string.h>

#include "base/alloc.h"
#include "exec/tile/tile.h"

#define SEVERAL (DYCL_NONE - 1) /* steps */

/* A feed and the output that replaces it. Steps side by side share a time. */
typedef struct {
    uint32_t feed;                             /* its slot */
    uint32_t read_time, read_step, write_step; /* DYCL_NONE: not yet */
} replaced;

typedef struct {
    const dycl_plan *plan;
    replaced *pairs;
    uint32_t *feed_of, *output_of; /* slot -> pair, or DYCL_NONE */
    uint32_t time, step;           /* being looked at */
} check;

static const dycl_tile_location *memory_at(const dycl_tile_program *p, uint8_t location) {
    const dycl_tile_location *l = &p->locations[location];
    int none = l->at == DYCL_AT_NONE || l->at == DYCL_AT_REGISTER || l->at == DYCL_AT_PART;
    return none || l->constant ? NULL : l;
}

static int same_place(const dycl_tile_program *p, const dycl_tile_location *a, const dycl_tile_location *b) {
    size_t bytes = a->at == DYCL_AT_ODOMETER ? (size_t)p->outer * sizeof *p->strides : 0;
    return a->at == b->at && a->ref.offset == b->ref.offset && a->row_bytes == b->row_bytes &&
           a->column_bytes == b->column_bytes &&
           (!bytes || !memcmp(p->strides + a->strides, p->strides + b->strides, bytes));
}

/* Every tile reads the elements that it writes, and no others. */
static int tiles_apart(const dycl_tile_program *p, uint32_t feed, uint32_t output) {
    for (int i = 0; i < p->location_count; i++) {
        const dycl_tile_location *from = memory_at(p, (uint8_t)i);
        if (!from || from->ref.slot != feed) continue;
        for (int k = 0; k < p->location_count; k++) {
            const dycl_tile_location *to = memory_at(p, (uint8_t)k);
            if (to && to->ref.slot == output && !same_place(p, from, to)) return 0;
        }
    }
    return 1;
}

static int reads_element_by_element(const dycl_tile_instruction *i) { return i->what <= DYCL_DO_EW_ONE; }

static int note_read(check *c, uint32_t pair) {
    replaced *r = &c->pairs[pair];
    if (r->write_step != DYCL_NONE) return 0;
    r->read_step = r->read_time == c->time && r->read_step != c->step ? SEVERAL : c->step;
    r->read_time = c->time;
    return 1;
}

static int note_write(check *c, uint32_t pair, const dycl_tile_program *p, const dycl_tile_instruction *i,
                      uint32_t output) {
    replaced *r = &c->pairs[pair];
    int reads_now = 0;
    if (r->write_step != DYCL_NONE) return 0; /* written by two instructions: the first is no result */
    if (r->read_time == c->time && r->read_step != c->step) return 0;
    const uint8_t operands[3] = {i->a, i->b, i->c};
    for (int k = 0; k < 3; k++) {
        const dycl_tile_location *from = memory_at(p, operands[k]);
        reads_now |= from && from->ref.slot == r->feed;
    }
    if (reads_now && !reads_element_by_element(i)) return 0;
    r->write_step = c->step;
    return r->read_time != c->time || tiles_apart(p, r->feed, output);
}

static int tile_allows(check *c, const dycl_tile_program *p) {
    for (int k = 0; k < p->instruction_count; k++) {
        const dycl_tile_instruction *i = &p->instructions[k];
        const uint8_t operands[3] = {i->a, i->b, i->c};
        for (int o = 0; o < 3; o++) {
            const dycl_tile_location *from = memory_at(p, operands[o]);
            uint32_t pair = from ? c->feed_of[from->ref.slot] : DYCL_NONE;
            if (pair != DYCL_NONE && !note_read(c, pair)) return 0;
        }
        const dycl_tile_location *to = memory_at(p, i->dst);
        uint32_t pair = to ? c->output_of[to->ref.slot] : DYCL_NONE;
        if (pair != DYCL_NONE && !note_write(c, pair, p, i, to->ref.slot)) return 0;
    }
    return 1;
}

static int steps_allow(check *c) {
    const dycl_plan *plan = c->plan;
    for (c->time = 0; c->time < plan->step_count; c->time++) {
        const dycl_group *group = plan->infos[c->time].group;
        const dycl_step *steps = group ? group->steps : &plan->steps[c->time];
        for (uint32_t i = 0; i < (group ? group->count : 1); i++, c->step++)
            if (steps[i].run != dycl_tile_run || !tile_allows(c, steps[i].args)) return 0;
    }
    return 1;
}

static int find_out(const dycl_plan *plan, const uint32_t *feeds, uint32_t count) {
    if (plan->backend || plan->check || plan->guarded || plan->packing_count) return 0;
    const dycl_graph *g = &plan->program.graph;
    check c = {.plan = plan};
    c.pairs = dycl_alloc((count + 1) * sizeof *c.pairs);
    c.feed_of = dycl_alloc((plan->slot_count + 1) * sizeof *c.feed_of);
    c.output_of = dycl_alloc((plan->slot_count + 1) * sizeof *c.output_of);
    int may = c.pairs && c.feed_of && c.output_of;
    if (may) {
        memset(c.pairs, 0xff, count * sizeof *c.pairs);
        memset(c.feed_of, 0xff, plan->slot_count * sizeof *c.feed_of);
        memset(c.output_of, 0xff, plan->slot_count * sizeof *c.output_of);
        for (uint32_t i = 0; i < count; i++) {
            c.feed_of[c.pairs[i].feed = g->feeds[feeds[i]]] = i;
            c.output_of[plan->program.outputs[i]] = i;
        }
        may = steps_allow(&c);
    }
    for (uint32_t i = 0; i < count && may; i++) may = c.pairs[i].write_step != DYCL_NONE;
    dycl_free(c.pairs);
    dycl_free(c.feed_of);
    dycl_free(c.output_of);
    return may;
}

int dycl_plan_in_place(dycl_plan *plan, const uint32_t *feeds, uint32_t count) {
    size_t bytes = count * sizeof *feeds;
    if (plan->replaced && plan->replaced_count == count && memcmp(plan->replaced, feeds, bytes) == 0)
        return plan->in_place;
    uint32_t *kept = dycl_realloc(plan->replaced, bytes + 1);
    if (!kept) return 0;
    plan->replaced = kept;
    plan->replaced_count = count;
    memcpy(kept, feeds, bytes);
    return plan->in_place = find_out(plan, feeds, count);
}
