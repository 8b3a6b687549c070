#include "exec/cache/pieces.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/lock.h"
#include "exec/cache/cuts.h"
#include "exec/plan/memory.h"
#include "exec/plan/workspace.h"

#define MOST_CROSSING 2048 /* values that live across a cut */

typedef struct {
    dycl_segment *segment;     /* retained */
    dycl_plan *plan;           /* retained from prepare to run; NULL otherwise */
    uint32_t *feeds, *scalars; /* owned: values of the whole graph */
    uint32_t *outputs;         /* owned: the segment's, as values of the whole graph */
    uint32_t first, last;      /* positions among the nodes */
} dycl_piece;

struct dycl_pieces {
    const dycl_graph *graph; /* borrowed, as the outputs: the segment's that owns the pieces */
    const uint32_t *outputs;
    int output_count;
    dycl_piece *pieces;
    uint32_t count;
    int by_parts;    /* 1: paths that come back get plans of their own */
    int64_t *places; /* root value -> offset in the workspace; -1: elsewhere */
    size_t bytes;
    dycl_claim busy;
    void **at; /* scratch of the run: where each root value is */
    dycl_feed *feeds;
    dycl_scalar *scalars;
    void **results;
};

/* ---- The graph of one piece */

typedef struct {
    const dycl_graph *whole;
    dycl_graph graph;
    uint32_t *of; /* value of the whole -> value of the piece, or DYCL_NONE */
    uint32_t *feeds, *scalars;
    uint32_t feed_count, scalar_count;
} builder;

static dycl_status value_of(builder *b, uint32_t v, uint32_t *out) {
    const dycl_value *value = &b->whole->values[v];
    dycl_status status = DYCL_OK;
    *out = v == DYCL_NONE ? DYCL_NONE : b->of[v];
    if (*out != DYCL_NONE || v == DYCL_NONE) return DYCL_OK;
    if (value->kind == DYCL_VALUE_SCALAR) {
        status = dycl_graph_scalar(&b->graph, (dycl_dtype)value->dtype, out);
        b->scalars[b->scalar_count++] = v;
    } else if (value->root != v && b->of[value->root] != DYCL_NONE &&
               b->whole->values[value->root].kind == DYCL_VALUE_NODE) {
        const dycl_node *view = &b->whole->nodes[value->source]; /* of what this piece computes */
        uint32_t operand;
        status = value_of(b, dycl_node_operands(b->whole, view)[0], &operand);
        if (status == DYCL_OK)
            status = dycl_graph_node(&b->graph, DYCL_OP_view, 1, &operand, view->attr_count,
                                     dycl_node_attrs(b->whole, view), out);
    } else {
        status = dycl_graph_feed(&b->graph, (dycl_dtype)value->dtype, value->rank, value->sizes, value->strides, out);
        b->feeds[b->feed_count++] = v;
    }
    if (status == DYCL_OK) b->of[v] = *out;
    return status;
}

static dycl_status build(builder *b, const dycl_piece *piece, const uint32_t *nodes) {
    dycl_status status;
    dycl_graph_reset(&b->graph);
    b->feed_count = b->scalar_count = 0;
    memset(b->of, 0xff, b->whole->value_count * sizeof *b->of);
    for (uint32_t i = piece->first; i < piece->last; i++) {
        const dycl_node *node = &b->whole->nodes[nodes[i]];
        const uint32_t *operands = dycl_node_operands(b->whole, node);
        uint32_t mapped[DYCL_MAX_OPERANDS];
        for (int k = 0; k < node->operand_count; k++) DYCL_TRY(value_of(b, operands[k], &mapped[k]));
        DYCL_TRY(dycl_graph_node_laid(&b->graph, (dycl_op)node->op, node->operand_count, mapped, node->attr_count,
                                      dycl_node_attrs(b->whole, node), &b->whole->values[node->out],
                                      &b->of[node->out]));
    }
    return DYCL_OK;
fail:
    return status;
}

static uint32_t *copy_of(const uint32_t *from, uint32_t count) {
    uint32_t *to = dycl_alloc((count + 1) * sizeof *to);
    if (to && count) memcpy(to, from, count * sizeof *to);
    return to;
}

/* Which piece reads a root value last; the caller's outputs are read behind all. */
static void find_last_readers(const dycl_pieces *p, const uint32_t *nodes, uint32_t *last) {
    memset(last, 0, p->graph->value_count * sizeof *last);
    for (uint32_t k = 0; k < p->count; k++)
        for (uint32_t i = p->pieces[k].first; i < p->pieces[k].last; i++) {
            const dycl_node *node = &p->graph->nodes[nodes[i]];
            const uint32_t *operands = dycl_node_operands(p->graph, node);
            for (int o = 0; o < node->operand_count; o++)
                if (operands[o] != DYCL_NONE) last[p->graph->values[operands[o]].root] = k;
        }
    for (int i = 0; i < p->output_count; i++) last[p->outputs[i]] = p->count;
}

static dycl_status make_pieces(dycl_plan_cache *cache, dycl_pieces *p, const uint32_t *nodes, builder *b,
                               uint32_t *last, dycl_slot *slots) {
    dycl_status status;
    uint32_t crossing = 0, most_feeds = 0, most_scalars = 0, most_outputs = 0;
    uint32_t *inside = NULL, *outside = NULL;
    find_last_readers(p, nodes, last);
    for (uint32_t k = 0; k < p->count; k++) {
        dycl_piece *piece = &p->pieces[k];
        uint32_t count = 0, length = piece->last - piece->first;
        DYCL_TRY(build(b, piece, nodes));
        inside = dycl_alloc((length + 1) * sizeof *inside);
        piece->outputs = outside = dycl_alloc((length + 1) * sizeof *outside);
        piece->feeds = copy_of(b->feeds, b->feed_count);
        piece->scalars = copy_of(b->scalars, b->scalar_count);
        if (!inside || !outside || !piece->feeds || !piece->scalars) {
            status = dycl_error_set("out of memory");
            goto fail;
        }
        for (uint32_t i = piece->first; i < piece->last; i++) {
            uint32_t out = p->graph->nodes[nodes[i]].out;
            if (last[out] <= k) continue;
            inside[count] = b->of[out];
            outside[count++] = out;
            if (last[out] == p->count) continue;
            slots[out] = (dycl_slot){
                .bytes = dycl_value_bytes(&p->graph->values[out]), .first = k, .last = last[out], .share = DYCL_NONE};
            crossing++;
        }
        if (crossing > MOST_CROSSING) {
            status = DYCL_BAIL;
            goto fail;
        }
        DYCL_TRY(dycl_plan_lookup(cache, &b->graph, inside, (int)count, &piece->segment));
        dycl_segment_retain(piece->segment);
        dycl_free(inside);
        inside = NULL;
        if (b->feed_count > most_feeds) most_feeds = b->feed_count;
        if (b->scalar_count > most_scalars) most_scalars = b->scalar_count;
        if (count > most_outputs) most_outputs = count;
    }
    DYCL_TRY(dycl_memory_plan(slots, p->graph->value_count, 0, &p->bytes));
    p->places = dycl_alloc((p->graph->value_count + 1) * sizeof *p->places);
    p->at = dycl_alloc((p->graph->value_count + 1) * sizeof *p->at);
    p->feeds = dycl_alloc((most_feeds + 1) * sizeof *p->feeds);
    p->scalars = dycl_alloc((most_scalars + 1) * sizeof *p->scalars);
    p->results = dycl_alloc((most_outputs + 1) * sizeof *p->results);
    if (!p->places || !p->at || !p->feeds || !p->scalars || !p->results) return dycl_error_set("out of memory");
    for (uint32_t v = 0; v < p->graph->value_count; v++)
        p->places[v] = slots[v].first == DYCL_NONE ? -1 : slots[v].place;
    return DYCL_OK;
fail:
    dycl_free(inside);
    return status;
}

/* BAIL: too much lives across the cuts. */
static dycl_status create_pieces(dycl_plan_cache *cache, const dycl_segment *whole, const dycl_cuts *cuts,
                                 dycl_pieces **out) {
    const dycl_graph *graph = &whole->graph;
    dycl_status status;
    builder b = {.whole = graph};
    uint32_t *last = NULL;
    dycl_slot *slots = NULL;
    dycl_pieces *p = dycl_alloc_zero(sizeof *p);
    if (!p) return dycl_error_set("out of memory");
    dycl_claim_give(&p->busy);
    dycl_graph_init(&b.graph);
    b.graph.options = graph->options;
    p->graph = graph;
    p->outputs = whole->outputs;
    p->output_count = whole->output_count;
    p->by_parts = cuts->by_parts;
    b.of = dycl_alloc((graph->value_count + 1) * sizeof *b.of);
    b.feeds = dycl_alloc((graph->value_count + 1) * sizeof *b.feeds);
    b.scalars = dycl_alloc((graph->value_count + 1) * sizeof *b.scalars);
    last = dycl_alloc((graph->value_count + 1) * sizeof *last);
    slots = dycl_alloc((graph->value_count + 1) * sizeof *slots);
    p->pieces = dycl_alloc((cuts->count + 1) * sizeof *p->pieces);
    if (!p->pieces || !b.of || !b.feeds || !b.scalars || !last || !slots) {
        status = dycl_error_set("out of memory");
        goto fail;
    }
    for (uint32_t v = 0; v < graph->value_count; v++) slots[v] = (dycl_slot){.first = DYCL_NONE, .share = DYCL_NONE};
    for (uint32_t k = 0; k < cuts->count; k++)
        p->pieces[p->count++] = (dycl_piece){.first = cuts->places[k], .last = cuts->places[k + 1]};
    DYCL_TRY(make_pieces(cache, p, cuts->nodes, &b, last, slots));
    *out = p;
    p = NULL;
fail:
    dycl_graph_free(&b.graph);
    dycl_free(b.of);
    dycl_free(b.feeds);
    dycl_free(b.scalars);
    dycl_free(last);
    dycl_free(slots);
    dycl_pieces_free(p);
    return status;
}

static void drop_plans(dycl_pieces *p) {
    for (uint32_t k = 0; k < p->count; k++) {
        dycl_plan_release(p->pieces[k].plan);
        p->pieces[k].plan = NULL;
    }
}

void dycl_pieces_free(dycl_pieces *p) {
    if (!p) return;
    if (p->pieces) drop_plans(p);
    for (uint32_t k = 0; k < p->count; k++) {
        dycl_segment_release(p->pieces[k].segment);
        dycl_free(p->pieces[k].feeds);
        dycl_free(p->pieces[k].scalars);
        dycl_free(p->pieces[k].outputs);
    }
    dycl_free(p->pieces);
    dycl_free(p->places);
    dycl_free(p->at);
    dycl_free(p->feeds);
    dycl_free(p->scalars);
    dycl_free(p->results);
    dycl_free(p);
}

/* ---- Running */

dycl_status dycl_pieces_prepare(dycl_plan_cache *cache, dycl_pieces *p) {
    dycl_status status;
    if (!dycl_claim_take(&p->busy)) return DYCL_BUSY;
    for (uint32_t k = 0; k < p->count; k++) {
        dycl_plan *plan;
        dycl_plan_use(cache, p->pieces[k].segment);
        DYCL_TRY(dycl_segment_plan(p->pieces[k].segment, &plan));
        dycl_plan_retain(plan); /* a later piece of the same segment may tune it */
        p->pieces[k].plan = plan;
    }
    return DYCL_OK;
fail:
    drop_plans(p);
    dycl_claim_give(&p->busy);
    return status;
}

static dycl_status run_piece(dycl_pieces *p, const dycl_piece *piece, const dycl_feed *feeds,
                             const dycl_scalar *scalars) {
    const dycl_graph *g = p->graph, *own = &piece->segment->graph;
    for (uint32_t i = 0; i < own->feed_count; i++) {
        const dycl_value *value = &g->values[piece->feeds[i]], *root = &g->values[value->root];
        dycl_feed *feed = &p->feeds[i];
        *feed = root->kind == DYCL_VALUE_FEED ? feeds[root->source] : (dycl_feed){p->at[value->root], 0, 0};
        feed->data = (char *)feed->data + value->offset * (int64_t)dycl_dtype_size((dycl_dtype)value->dtype);
    }
    for (uint32_t i = 0; i < own->scalar_count; i++) p->scalars[i] = scalars[g->values[piece->scalars[i]].source];
    for (int i = 0; i < piece->segment->output_count; i++) p->results[i] = p->at[piece->outputs[i]];
    dycl_status status = dycl_plan_run(piece->plan, p->feeds, p->scalars, p->results);
    if (status != DYCL_BUSY) return status;
    dycl_plan *own_plan; /* another thread runs this plan */
    DYCL_TRY(dycl_plan_create(own, piece->segment->outputs, piece->segment->output_count, DYCL_PLAN_COLD, &own_plan));
    status = dycl_plan_run(own_plan, p->feeds, p->scalars, p->results);
    dycl_plan_release(own_plan);
fail:
    return status;
}

dycl_status dycl_pieces_run(dycl_pieces *p, const dycl_feed *feeds, const dycl_scalar *scalars, void *const *outputs) {
    dycl_status status = DYCL_OK;
    dycl_workspace *workspace = p->bytes ? dycl_workspace_take(p->bytes, 0) : NULL;
    if (p->bytes && !workspace) {
        status = dycl_error_set("out of memory for a workspace of %zu bytes", p->bytes);
        goto fail;
    }
    for (uint32_t v = 0; v < p->graph->value_count; v++)
        if (p->places[v] >= 0)
            p->at[v] = workspace ? (char *)workspace->data + p->places[v] : NULL; /* NULL: of no elements */
    for (int i = 0; i < p->output_count; i++) p->at[p->outputs[i]] = outputs[i];
    for (uint32_t k = 0; k < p->count; k++) DYCL_TRY(run_piece(p, &p->pieces[k], feeds, scalars));
fail:
    if (workspace) dycl_workspace_give(workspace);
    drop_plans(p);
    dycl_claim_give(&p->busy);
    return status;
}

double dycl_pieces_cost(const dycl_pieces *p) {
    double sum = 0;
    for (uint32_t k = 0; k < p->count; k++)
        if (p->pieces[k].plan) sum += dycl_plan_cost(p->pieces[k].plan);
    return sum;
}

int dycl_pieces_are_parts(const dycl_pieces *p) { return p->by_parts; }

uint32_t dycl_pieces_count(const dycl_pieces *p) { return p->count; }

const dycl_segment *dycl_pieces_segment(const dycl_pieces *p, uint32_t nth) { return p->pieces[nth].segment; }

/* ---- Whole or in pieces */

/* BAIL: it is better as a whole. */
static dycl_status cut_new(dycl_plan_cache *cache, dycl_segment *s, int other_count, dycl_segment *const *others) {
    dycl_cuts cuts;
    dycl_status status = dycl_cuts_find(s, other_count, others, &cuts);
    if (status == DYCL_OK) status = create_pieces(cache, s, &cuts, &s->pieces);
    dycl_cuts_free(&cuts);
    return status;
}

#define STEADY  3 /* times in a row that the same trip count comes before the segment gets a plan as a whole */
#define RETURNS 1 /* times that a path came in parts */

dycl_status dycl_segment_prepare(dycl_plan_cache *cache, dycl_segment *s, int other_count, dycl_segment *const *others,
                                 dycl_plan **out_plan, dycl_pieces **out_pieces) {
    dycl_status status;
    *out_plan = NULL;
    *out_pieces = NULL;
    dycl_plan_use(cache, s);
    if (!s->plan && !s->pieces && !s->sightings) {
        status = cut_new(cache, s, other_count, others);
        if (status == DYCL_ERROR) return status;
    }
    if (s->pieces) {
        s->steady = other_count && others[0] == s ? s->steady + 1 : 0;
        if (s->steady < STEADY && !(s->pieces->by_parts && s->sightings >= RETURNS)) {
            DYCL_TRY(dycl_pieces_prepare(cache, s->pieces));
            s->sightings++;
            *out_pieces = s->pieces;
            return DYCL_OK;
        }
        if (dycl_claim_take(&s->pieces->busy)) { /* nobody runs them */
            dycl_pieces_free(s->pieces);
            s->pieces = NULL;
        }
    }
    return dycl_segment_plan(s, out_plan);
fail:
    return status;
}
