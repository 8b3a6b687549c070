#include "exec/cache/cuts.h"

#include <string.h>

#include "base/alloc.h"
#include "opt/period.h"

#define MOST_ITERATIONS 16   /* of one piece */
#define MOST_HALVED     4    /* pieces of 8, 4, 2 and 1 iterations behind those */
#define MOST_NODES      1024 /* of a piece with several iterations */
#define MOST_PIECES     1024

/* ---- What a segment is made of */

static dycl_status look_at(dycl_segment *s, dycl_period *out) {
    dycl_status status = dycl_period_find(&s->graph, s->outputs, s->output_count, out);
    if (status != DYCL_OK || s->looked_at) return status;
    DYCL_TRY(dycl_parts_find(&s->graph, out, &s->parts));
    s->body = out->body;
    s->looked_at = 1;
    return DYCL_OK;
fail:
    dycl_period_free(out);
    return status;
}

static dycl_status look_at_others(int other_count, dycl_segment *const *others) {
    for (int i = 0; i < other_count; i++) {
        dycl_period period;
        if (others[i]->looked_at) continue;
        dycl_status status = look_at(others[i], &period);
        if (status != DYCL_OK) return status;
        dycl_period_free(&period);
    }
    return DYCL_OK;
}

/* Whether one of those that ran here before repeats the same, so that only the trip count differs. */
static int is_another_count(const dycl_segment *s, int other_count, dycl_segment *const *others) {
    int found = 0;
    for (int i = 0; s->body && i < other_count; i++) found |= others[i] != s && others[i]->body == s->body;
    return found;
}

/* Whether those before had parts like most of it. */
static int has_known_parts(const dycl_segment *s, int other_count, dycl_segment *const *others) {
    const dycl_parts *parts = &s->parts;
    uint32_t nodes = 0;
    if (parts->count < 2) return 0;
    uint8_t *known = dycl_alloc_zero(parts->look_count);
    if (!known) return 0;
    for (int i = 0; i < other_count; i++)
        if (others[i] != s) dycl_parts_mark_known(parts, &others[i]->parts, known);
    for (uint32_t k = 0; k < parts->count; k++)
        if (known[parts->kinds[k]]) nodes += parts->starts[k + 1] - parts->starts[k];
    dycl_free(known);
    return 2 * nodes >= parts->starts[parts->count];
}

/* ---- The cuts */

static void add_piece(dycl_cuts *c, uint32_t first, uint32_t last) {
    if (first >= last) return;
    c->places[c->count++] = first;
    c->places[c->count] = last;
}

static void add_parts(dycl_cuts *c, const dycl_parts *parts, uint32_t first, uint32_t last) {
    for (uint32_t k = 0; k < parts->count; k++) {
        uint32_t begin = parts->starts[k] > first ? parts->starts[k] : first,
                 end = parts->starts[k + 1] < last ? parts->starts[k + 1] : last;
        if (begin < end) c->by_parts = 1;
        add_piece(c, begin, end);
    }
}

/* How many parts end at a position, or before it. */
static uint32_t parts_before(const dycl_parts *parts, uint32_t position) {
    uint32_t k = 0;
    while (k < parts->count && parts->starts[k + 1] <= position) k++;
    return k;
}

/* Whether another trace begins, or ends, as this one does before its loop, or behind it. */
static int is_same_end(const dycl_parts *parts, uint32_t first, uint32_t last, int other_count,
                       dycl_segment *const *others) {
    uint32_t from = parts_before(parts, first), to = parts_before(parts, last);
    int found = 0;
    for (int i = 0; i < other_count; i++) {
        const dycl_parts *other = &others[i]->parts;
        if (other == parts || to - from > other->count) continue;
        found |= dycl_parts_equal(parts, from, to, other, first ? other->count - (to - from) : 0);
    }
    return found;
}

static void add_end(dycl_cuts *c, const dycl_segment *s, int known, uint32_t first, uint32_t last, int other_count,
                    dycl_segment *const *others) {
    if (known && !is_same_end(&s->parts, first, last, other_count, others))
        add_parts(c, &s->parts, first, last);
    else
        add_piece(c, first, last);
}

static dycl_status cut(const dycl_segment *s, const dycl_period *period, int other_count, dycl_segment *const *others,
                       dycl_cuts *out) {
    int another = is_another_count(s, other_count, others), known = has_known_parts(s, other_count, others);
    uint32_t longest = MOST_ITERATIONS, at = another ? period->first : period->node_count;
    if (!another && !known) return DYCL_BAIL;
    while (longest > 1 && longest * period->period > MOST_NODES) longest /= 2;
    uint32_t pieces = (another ? period->iterations / longest + MOST_HALVED + 2 : 0) + (known ? s->parts.count + 2 : 0);
    if (pieces > MOST_PIECES) return DYCL_BAIL;
    out->places = dycl_alloc((pieces + 1) * sizeof *out->places);
    if (!out->places) return dycl_error_set("out of memory");
    if (!another) {
        add_parts(out, &s->parts, 0, at);
        return DYCL_OK;
    }
    add_end(out, s, known, 0, at, other_count, others);
    for (uint32_t left = period->iterations, most = longest; left; left -= most) {
        while (most > left) most /= 2;
        add_piece(out, at, at + most * period->period);
        at += most * period->period;
    }
    add_end(out, s, known, at, period->node_count, other_count, others);
    return DYCL_OK;
}

dycl_status dycl_cuts_find(dycl_segment *s, int other_count, dycl_segment *const *others, dycl_cuts *out) {
    dycl_status status;
    dycl_period period;
    memset(out, 0, sizeof *out);
    if (!other_count) return DYCL_BAIL;
    if ((status = look_at(s, &period)) != DYCL_OK) return status;
    DYCL_TRY(look_at_others(other_count, others));
    DYCL_TRY(cut(s, &period, other_count, others, out));
    if (out->count < 2) status = DYCL_BAIL; /* one piece would be the segment itself */
    out->nodes = period.nodes;
    period.nodes = NULL;
fail:
    dycl_period_free(&period);
    return status;
}

void dycl_cuts_free(dycl_cuts *cuts) {
    dycl_free(cuts->nodes);
    dycl_free(cuts->places);
    memset(cuts, 0, sizeof *cuts);
}
