#include "py/region/reach.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "grad/backward.h"

/* ---- Sets of results, each kept once */

typedef struct {
    size_t words;    /* of a set */
    uint64_t *bits;  /* set 0 is the empty one */
    uint32_t *slots; /* open addressing: 1 + the set */
    uint32_t count, room, slot_room;
    uint32_t last[3]; /* the union that was asked for last, and what it is */
} sets;

static uint64_t *set_at(const sets *s, uint32_t set) { return s->bits + set * s->words; }

static uint32_t *slot_of(const sets *s, const uint64_t *bits) {
    uint64_t hash = 0;
    for (size_t w = 0; w < s->words; w++) hash = (hash ^ bits[w]) * UINT64_C(0x9e3779b97f4a7c15), hash ^= hash >> 29;
    uint32_t mask = s->slot_room - 1, at = (uint32_t)(hash >> 32) & mask;
    while (s->slots[at] && memcmp(set_at(s, s->slots[at] - 1), bits, s->words * sizeof *bits) != 0)
        at = (at + 1) & mask;
    return &s->slots[at];
}

static dycl_status grow(sets *s) {
    uint32_t room = s->room ? 2 * s->room : 64;
    uint64_t *bits = dycl_realloc(s->bits, (room + 1) * s->words * sizeof *bits); /* one more: to be looked for */
    if (!bits) return DYCL_ERROR;
    s->bits = bits;
    s->room = room;
    dycl_free(s->slots);
    s->slots = dycl_alloc_zero((s->slot_room = 4 * room) * sizeof *s->slots);
    if (!s->slots) return DYCL_ERROR;
    for (uint32_t i = 0; i < s->count; i++) *slot_of(s, set_at(s, i)) = i + 1;
    return DYCL_OK;
}

/* The set that was written behind the last one. */
static dycl_status keep(sets *s, uint32_t *out) {
    uint32_t *slot = slot_of(s, set_at(s, s->count));
    if (*slot) {
        *out = *slot - 1;
        return DYCL_OK;
    }
    *slot = s->count + 1;
    *out = s->count++;
    return s->count < s->room ? DYCL_OK : grow(s);
}

static dycl_status one(sets *s, uint32_t result, uint32_t *out) {
    memset(set_at(s, s->count), 0, s->words * sizeof *s->bits);
    set_at(s, s->count)[result / 64] |= UINT64_C(1) << result % 64;
    return keep(s, out);
}

static dycl_status join(sets *s, uint32_t a, uint32_t b, uint32_t *out) {
    if (!a || a == b) {
        *out = b;
        return DYCL_OK;
    }
    if (a != s->last[0] || b != s->last[1]) {
        uint64_t *to = set_at(s, s->count);
        for (size_t w = 0; w < s->words; w++) to[w] = set_at(s, a)[w] | set_at(s, b)[w];
        s->last[0] = a;
        s->last[1] = b;
        dycl_status status = keep(s, &s->last[2]);
        if (status != DYCL_OK) return status;
    }
    *out = s->last[2];
    return DYCL_OK;
}

/* ---- Which results an operator leads to */

/* torch averages over all of it with mean. */
static int is_mean(const dycl_value *out, int dims) {
    for (int i = 1; i <= dims && i <= out->rank; i++)
        if (out->sizes[out->rank - i] != 1) return 0;
    return 1;
}

int dycl_reach_saves(const dycl_graph *graph, const uint8_t *tracked, const dycl_node *node) {
    const uint32_t *operands = dycl_node_operands(graph, node);
    const dycl_value *out = &graph->values[node->out];
    if (tracked[node->out] & DYCL_GRAD_UNSAVED) return 0;
    switch ((dycl_op)node->op) {
    case DYCL_OP_index_select: /* flip: its positions are its own */
        return !dycl_value_is_made_by(graph, operands[1], DYCL_OP_iota);
    case DYCL_OP_fmod: /* what the other operand's gradient needs */
    case DYCL_OP_remainder: return tracked[operands[1]] != 0;
    case DYCL_OP_linear: return tracked[operands[0]] || tracked[operands[1]];
    case DYCL_OP_aten_scatter_add: /* positions, for what was added: behind a list of positions the last operand */
    case DYCL_OP_aten_index_add: return tracked[operands[node->operand_count - 1]] != 0;
    case DYCL_OP_lerp: return graph->values[operands[2]].kind != DYCL_VALUE_SCALAR;
    case DYCL_OP_aten_adaptive_avg_pool1d: return !is_mean(out, 1);
    case DYCL_OP_adaptive_avg_pool2d:
    case DYCL_OP_aten_adaptive_avg_pool2d: return !is_mean(out, 2);
    case DYCL_OP_aten_adaptive_avg_pool3d: return !is_mean(out, 3);
    case DYCL_OP_cumsum:
    case DYCL_OP_aten_cumsum:
    case DYCL_OP_aten_diff:
    case DYCL_OP_aten_diag:
    case DYCL_OP_aten_diag_embed:
    case DYCL_OP_aten_trace:
    case DYCL_OP_resize2d:
    case DYCL_OP_aten_upsample_linear1d:
    case DYCL_OP_aten_upsample_bilinear2d:
    case DYCL_OP_aten_upsample_trilinear3d:
    case DYCL_OP_aten_upsample_bicubic2d:
    case DYCL_OP_aten_upsample_nearest1d:
    case DYCL_OP_aten_upsample_nearest2d:
    case DYCL_OP_aten_upsample_nearest3d:
    case DYCL_OP_aten_upsample_nearest_exact1d:
    case DYCL_OP_aten_upsample_nearest_exact2d:
    case DYCL_OP_aten_upsample_nearest_exact3d:
    case DYCL_OP_aten_upsample_bilinear2d_aa:
    case DYCL_OP_aten_upsample_bicubic2d_aa:
    case DYCL_OP_aten_pixel_shuffle:
    case DYCL_OP_aten_pixel_unshuffle:
    case DYCL_OP_aten_channel_shuffle:
    case DYCL_OP_aten_im2col:
    case DYCL_OP_aten_col2im:
    case DYCL_OP_aten_affine_grid_generator:
    case DYCL_OP_aten_deg2rad:
    case DYCL_OP_aten_rad2deg:
    case DYCL_OP_copy:
    case DYCL_OP_neg:
    case DYCL_OP_sign:
    case DYCL_OP_floor:
    case DYCL_OP_ceil:
    case DYCL_OP_round:
    case DYCL_OP_trunc:
    case DYCL_OP_frac:
    case DYCL_OP_add:
    case DYCL_OP_sub:
    case DYCL_OP_add_scaled:
    case DYCL_OP_sum:
    case DYCL_OP_mean:
    case DYCL_OP_cast:
    case DYCL_OP_view:
    case DYCL_OP_contiguous:
    case DYCL_OP_cat:
    case DYCL_OP_pad:
    case DYCL_OP_tril:
    case DYCL_OP_triu:
    case DYCL_OP_aten_rot90: return 0;
    default: return 1;
    }
}

/* From the last operator to the first. leads: by value, a set; of what is no result: of all that it leads to without
 * passing through a result. Of a view its root crosses. */
static dycl_status spread(const dycl_graph *graph, const uint8_t *tracked, const uint32_t *result, sets *s,
                          uint32_t *leads, uint8_t *crosses) {
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        uint32_t out = node->out;
        if (!tracked[out]) continue;
        dycl_status status = result[out] ? one(s, result[out] - 1, &leads[out]) : DYCL_OK;
        if (result[out]) crosses[out] = 0;
        int view = graph->values[out].root != out, mixed = view && crosses[out];
        for (int i = 0; i < node->operand_count && status == DYCL_OK && leads[out]; i++) {
            uint32_t v = operands[i];
            if (v == DYCL_NONE || !tracked[v] || graph->values[v].kind != DYCL_VALUE_NODE) continue;
            crosses[v] |= mixed || (leads[v] && leads[v] != leads[out]);
            status = join(s, leads[v], leads[out], &leads[v]);
        }
        if (view) crosses[out] = 0;
        if (status != DYCL_OK) return status;
    }
    return DYCL_OK;
}

/* ---- Nodes of these */

typedef struct {
    uint32_t set, first, size; /* first: of the results in it */
} rank;

static int by_need(const void *a, const void *b) {
    const rank *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->set < y->set ? -1 : x->set > y->set;
}

static rank rank_of(const sets *s, uint32_t set) {
    rank r = {set, 0, 0};
    for (size_t w = s->words; w-- > 0;) {
        uint64_t word = set_at(s, set)[w];
        r.size += (uint32_t)__builtin_popcountll(word);
        if (word) r.first = (uint32_t)(64 * w) + (uint32_t)__builtin_ctzll(word);
    }
    return r;
}

/* From sets to nodes. What stands before others leads to all that they lead to and to more, or to a result that they
 * depend on. */
static dycl_status number_nodes(const sets *s, const dycl_graph *graph, dycl_reach *r) {
    rank *ranks = dycl_alloc(s->count * sizeof *ranks);
    uint32_t *number = dycl_alloc_zero(s->count * sizeof *number);
    if (ranks && number) {
        for (uint32_t n = 0; n < graph->node_count; n++) {
            uint32_t set = r->node[graph->nodes[n].out];
            if (!set || number[set]) continue;
            ranks[r->count++] = rank_of(s, set);
            number[set] = 1;
        }
        qsort(ranks, r->count, sizeof *ranks, by_need);
        for (uint32_t i = 0; i < r->count; i++) number[ranks[i].set] = i + 1;
        for (uint32_t n = 0; n < graph->node_count; n++)
            r->node[graph->nodes[n].out] = number[r->node[graph->nodes[n].out]];
    }
    int done = ranks && number;
    dycl_free(ranks);
    dycl_free(number);
    return done ? DYCL_OK : DYCL_ERROR;
}

dycl_status dycl_reach_find(const dycl_graph *graph, const uint8_t *tracked, const uint32_t *result, uint32_t count,
                            dycl_reach *out) {
    sets s = {.words = (count + 63) / 64 + !count};
    *out = (dycl_reach){.node = dycl_alloc_zero((graph->value_count + 1) * sizeof *out->node),
                        .crosses = dycl_alloc_zero(graph->value_count + 1)};
    dycl_status status = out->node && out->crosses ? grow(&s) : DYCL_ERROR;
    if (status == DYCL_OK) {
        uint32_t empty;
        memset(s.bits, 0, s.words * sizeof *s.bits);
        status = keep(&s, &empty);
    }
    if (status == DYCL_OK) status = spread(graph, tracked, result, &s, out->node, out->crosses);
    if (status == DYCL_OK) status = number_nodes(&s, graph, out);
    if (status == DYCL_OK) {
        out->once = dycl_alloc_zero(out->count + 1);
        if (!out->once) status = DYCL_ERROR;
    }
    for (uint32_t n = 0; status == DYCL_OK && n < graph->node_count; n++) {
        uint32_t node = out->node[graph->nodes[n].out];
        if (node && dycl_reach_saves(graph, tracked, &graph->nodes[n])) out->once[node - 1] = 1;
    }
    dycl_free(s.bits);
    dycl_free(s.slots);
    return status == DYCL_OK ? DYCL_OK : dycl_error_set("out of memory for the nodes of %u results", count);
}

void dycl_reach_free(dycl_reach *r) {
    dycl_free(r->node);
    dycl_free(r->crosses);
    dycl_free(r->once);
}

uint32_t dycl_reach_source(const dycl_graph *graph, const dycl_reach *r, const uint32_t *result, uint32_t node,
                           uint32_t v) {
    for (;;) {
        const dycl_value *value = &graph->values[v];
        if (value->kind != DYCL_VALUE_NODE) return v;
        if (r->node[v] == node) return DYCL_NONE;
        if (result[v] || r->crosses[v]) return v;
        v = dycl_node_operands(graph, &graph->nodes[value->source])[0]; /* a view that several nodes take */
    }
}
