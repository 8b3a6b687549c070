#include "py/region/part.h"

#include <string.h>

#include "base/alloc.h"

int dycl_part_saves(const dycl_graph *graph, const dycl_node *node) {
    (void)graph;
    switch ((dycl_op)node->op) {
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
    case DYCL_OP_triu: return 0;
    default: return 1;
    }
}

typedef struct {
    size_t words;     /* of a set of results */
    uint64_t *behind; /* by value: the results that it leads to */
    uint64_t *shares; /* by result: those that share something with it */
} sets;

static dycl_status spread(const dycl_part_job *job, const sets *s, uint8_t *saves) {
    const dycl_graph *graph = job->graph;
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const dycl_node *node = &graph->nodes[n];
        const uint32_t *operands = dycl_node_operands(graph, node);
        const uint64_t *from = s->behind + node->out * s->words;
        uint64_t any = 0;
        for (size_t w = 0; w < s->words; w++) any |= from[w];
        if (!any || !job->tracked[node->out]) continue;
        for (uint32_t i = 0; i < job->count && dycl_part_saves(graph, node); i++) {
            if (!(from[i / 64] >> i % 64 & 1)) continue;
            saves[i] = 1;
            for (size_t w = 0; w < s->words; w++) s->shares[i * s->words + w] |= from[w];
        }
        for (int k = 0; k < node->operand_count; k++) {
            if (operands[k] == DYCL_NONE || !job->tracked[operands[k]] || job->stops[operands[k]]) continue;
            uint64_t *to = s->behind + operands[k] * s->words;
            for (size_t w = 0; w < s->words; w++) to[w] |= from[w];
        }
    }
    return DYCL_OK;
}

/* Those that share something with the result must all share something with each other. */
static int is_whole(const sets *s, uint32_t result, uint32_t count) {
    const uint64_t *own = s->shares + result * s->words;
    for (uint32_t i = 0; i < count; i++)
        if (own[i / 64] >> i % 64 & 1 && memcmp(own, s->shares + i * s->words, s->words * sizeof *own) != 0) return 0;
    return 1;
}

dycl_status dycl_part_find(const dycl_part_job *job, uint32_t *parts, uint8_t *saves) {
    sets s = {.words = (job->count + 63) / 64};
    s.behind = dycl_alloc_zero((size_t)job->graph->value_count * s.words * sizeof *s.behind + 1);
    s.shares = dycl_alloc_zero(job->count * s.words * sizeof *s.shares + 1);
    dycl_status status = s.behind && s.shares ? DYCL_OK : dycl_error_set("out of memory for %u results", job->count);
    if (status == DYCL_OK) {
        memset(saves, 0, job->count);
        for (uint32_t i = 0; i < job->count; i++) s.behind[job->results[i] * s.words + i / 64] |= UINT64_C(1) << i % 64;
        status = spread(job, &s, saves);
    }
    for (uint32_t i = 0; status == DYCL_OK && i < job->count; i++) {
        const uint64_t *own = s.shares + i * s.words;
        uint32_t first = i;
        for (uint32_t k = 0; k < i && first == i; k++)
            if (own[k / 64] >> k % 64 & 1) first = k;
        parts[i] = first < i && is_whole(&s, i, job->count) ? first : i;
    }
    dycl_free(s.behind);
    dycl_free(s.shares);
    return status;
}
