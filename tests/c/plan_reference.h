/* A slow interpreter of graphs for the tests of plans: every node by its definition, in double, over any strides.
 * Ownership: ref_run allocates a buffer a root value; ref_free frees them. */
#ifndef DYCL_TEST_PLAN_REFERENCE_H
#define DYCL_TEST_PLAN_REFERENCE_H

#include "ir/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const dycl_graph *graph;
    void **data; /* root value -> first element */
    uint8_t *owned;
    int bad_index;
} reference;

static double ref_load(const void *p, int64_t i, int dtype) {
    switch (dtype) {
    case DYCL_F32: return ((const float *)p)[i];
    case DYCL_F64: return ((const double *)p)[i];
    case DYCL_I64: return (double)((const int64_t *)p)[i];
    case DYCL_I32: return ((const int32_t *)p)[i];
    case DYCL_I16: return ((const int16_t *)p)[i];
    case DYCL_I8: return ((const int8_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

static void ref_store(void *p, int64_t i, int dtype, double x) {
    switch (dtype) {
    case DYCL_F32: ((float *)p)[i] = (float)x; return;
    case DYCL_F64: ((double *)p)[i] = x; return;
    case DYCL_I64: ((int64_t *)p)[i] = (int64_t)x; return;
    case DYCL_I32: ((int32_t *)p)[i] = (int32_t)(int64_t)x; return;
    case DYCL_I16: ((int16_t *)p)[i] = (int16_t)(int64_t)x; return;
    case DYCL_I8: ((int8_t *)p)[i] = (int8_t)(int64_t)x; return;
    case DYCL_BOOL: ((uint8_t *)p)[i] = x != 0; return;
    default: ((uint8_t *)p)[i] = (uint8_t)(int64_t)x; return;
    }
}

/* Element of a value at an index of a shape that it broadcasts to. */
static int64_t ref_at(const dycl_value *v, const int64_t *index, int rank) {
    int64_t at = v->offset;
    for (int i = 0; i < v->rank; i++) {
        int64_t k = index[rank - v->rank + i];
        at += (v->sizes[i] == 1 ? 0 : k) * v->strides[i];
    }
    return at;
}

static double ref_get(const reference *r, uint32_t id, const int64_t *index, int rank) {
    const dycl_value *v = &r->graph->values[id];
    return ref_load(r->data[v->root], ref_at(v, index, rank), v->dtype);
}

static void ref_set(reference *r, uint32_t id, const int64_t *index, double x) {
    const dycl_value *v = &r->graph->values[id];
    ref_store(r->data[v->root], ref_at(v, index, v->rank), v->dtype, x);
}

static int ref_next(int64_t *index, const int64_t *sizes, int rank) {
    for (int d = rank - 1; d >= 0; d--) {
        if (++index[d] < sizes[d]) return 1;
        index[d] = 0;
    }
    return 0;
}

static double ref_ew(int op, double a, double b, double c) {
    switch (op) {
    case DYCL_EW_copy: return a;
    case DYCL_EW_neg: return -a;
    case DYCL_EW_abs: return fabs(a);
    case DYCL_EW_square: return a * a;
    case DYCL_EW_exp: return exp(a);
    case DYCL_EW_tanh: return tanh(a);
    case DYCL_EW_sigmoid: return 1 / (1 + exp(-a));
    case DYCL_EW_relu: return a < 0 ? 0 : a;
    case DYCL_EW_gelu: return 0.5 * a * (1 + erf(a / sqrt(2)));
    case DYCL_EW_silu: return a / (1 + exp(-a));
    case DYCL_EW_sin: return sin(a);
    case DYCL_EW_hardswish: return a * fmin(fmax(a + 3, 0), 6) / 6;
    case DYCL_EW_add: return a + b;
    case DYCL_EW_sub: return a - b;
    case DYCL_EW_mul: return a * b;
    case DYCL_EW_div: return a / b;
    case DYCL_EW_maximum: return a != a || a > b ? a : b;
    case DYCL_EW_minimum: return a != a || a < b ? a : b;
    case DYCL_EW_lt: return a < b;
    case DYCL_EW_ge: return a >= b;
    case DYCL_EW_leaky_relu: return a > 0 ? a : a * b;
    case DYCL_EW_where: return a != 0 ? b : c;
    case DYCL_EW_clamp: return fmin(fmax(a, b), c);
    case DYCL_EW_logical_not: return a == 0;
    default: abort();
    }
}

static void ref_reduce(reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_graph *g = r->graph;
    const dycl_value *in = &g->values[o[0]], *out = &g->values[node->out];
    int64_t index[8] = {0};
    int rank = in->rank;
    for (int64_t done = 0, n = dycl_value_numel(out); done < n; done++) {
        int64_t inner[8] = {0}, sizes[8], at[8];
        int64_t reduced = 1;
        for (int d = 0, k = 0; d < rank; d++) {
            int is = (attrs[0] >> d) & 1;
            sizes[d] = is ? in->sizes[d] : 1;
            if (is) reduced *= in->sizes[d];
            at[d] = is ? 0 : index[k];
            k += !is || attrs[1];
        }
        double sum = 0, prod = 1, most = -INFINITY, least = INFINITY, squares = 0, absolute = 0;
        int64_t where_most = 0, where_least = 0;
        int all = 1, any = 0;
        for (int64_t i = 0; i < reduced; i++) {
            int64_t full[8];
            for (int d = 0; d < rank; d++) full[d] = at[d] + inner[d];
            double x = ref_get(r, o[0], full, rank);
            sum += x;
            prod *= x;
            squares += x * x;
            absolute += fabs(x);
            if (x > most || (x != x && most == most)) most = x, where_most = i; /* the first NaN stands above and below all numbers */
            if (x < least || (x != x && least == least)) least = x, where_least = i;
            all &= x != 0;
            any |= x != 0;
            ref_next(inner, sizes, rank);
        }
        double result = 0;
        switch (node->op) {
        case DYCL_OP_sum: result = sum; break;
        case DYCL_OP_mean: result = sum / (double)reduced; break;
        case DYCL_OP_prod: result = prod; break;
        case DYCL_OP_amax: result = most; break;
        case DYCL_OP_amin: result = least; break;
        case DYCL_OP_all: result = all; break;
        case DYCL_OP_any: result = any; break;
        case DYCL_OP_argmax: result = (double)where_most; break;
        case DYCL_OP_argmin: result = (double)where_least; break;
        case DYCL_OP_sumsq: result = squares; break;
        case DYCL_OP_sumabs: result = absolute; break;
        default: {
            double mean = sum / (double)reduced, deviation = 0, correction = dycl_attr_f64(attrs[2]);
            memset(inner, 0, sizeof inner);
            for (int64_t i = 0; i < reduced; i++) {
                int64_t full[8];
                for (int d = 0; d < rank; d++) full[d] = at[d] + inner[d];
                double x = ref_get(r, o[0], full, rank) - mean;
                deviation += x * x;
                ref_next(inner, sizes, rank);
            }
            result = deviation / fmax(0, (double)reduced - correction);
        }
        }
        ref_set(r, node->out, index, result);
        ref_next(index, out->sizes, out->rank);
    }
}

static void ref_row(reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *in = &r->graph->values[o[0]];
    int dim = (int)attrs[0];
    int64_t index[8] = {0}, sizes[8], n = in->sizes[dim], rows = n ? dycl_value_numel(in) / n : 0;
    memcpy(sizes, in->sizes, sizeof sizes);
    sizes[dim] = 1;
    for (int64_t row = 0; row < rows; row++) {
        double most = -INFINITY, sum = 0, running = 0;
        for (index[dim] = 0; index[dim] < n; index[dim]++) most = fmax(most, ref_get(r, o[0], index, in->rank));
        for (index[dim] = 0; index[dim] < n; index[dim]++) sum += exp(ref_get(r, o[0], index, in->rank) - most);
        for (index[dim] = 0; index[dim] < n; index[dim]++) {
            double x = ref_get(r, o[0], index, in->rank);
            running += x;
            ref_set(r, node->out, index,
                    node->op == DYCL_OP_softmax  ? exp(x - most) / sum
                    : node->op == DYCL_OP_cumsum ? running
                                                 : x - most - log(sum));
        }
        index[dim] = 0;
        ref_next(index, sizes, in->rank);
    }
}

static void ref_norm(reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_value *in = &r->graph->values[o[0]];
    int64_t index[8] = {0}, n = dycl_value_numel(in);
    int rank = in->rank;
    if (node->op == DYCL_OP_batch_norm) {
        double eps = dycl_attr_f64(attrs[0]);
        for (int64_t i = 0; i < n; i++) {
            int64_t c[1] = {index[1]};
            double x = (ref_get(r, o[0], index, rank) - ref_get(r, o[1], c, 1)) / sqrt(ref_get(r, o[2], c, 1) + eps);
            if (o[3] != DYCL_NONE) x *= ref_get(r, o[3], c, 1);
            if (o[4] != DYCL_NONE) x += ref_get(r, o[4], c, 1);
            ref_set(r, node->out, index, x);
            ref_next(index, in->sizes, rank);
        }
        return;
    }
    int first = rank - (int)attrs[0];
    int64_t row = 1;
    if (node->op == DYCL_OP_group_norm) {
        for (int d = 1; d < rank; d++) row *= in->sizes[d];
        row /= attrs[0];
    } else
        for (int d = first; d < rank; d++) row *= in->sizes[d];
    double eps = dycl_attr_f64(attrs[1]);
    for (int64_t i = 0; i < n; i += row) {
        int64_t start[8];
        memcpy(start, index, sizeof start);
        double mean = 0, square = 0, deviation = 0;
        for (int64_t k = 0; k < row; k++) {
            double x = ref_get(r, o[0], index, rank);
            mean += x;
            square += x * x;
            ref_next(index, in->sizes, rank);
        }
        mean /= (double)row;
        memcpy(index, start, sizeof start);
        for (int64_t k = 0; k < row; k++) {
            double x = ref_get(r, o[0], index, rank) - mean;
            deviation += x * x;
            ref_next(index, in->sizes, rank);
        }
        memcpy(index, start, sizeof start);
        for (int64_t k = 0; k < row; k++) {
            double x = ref_get(r, o[0], index, rank);
            x = node->op == DYCL_OP_rms_norm ? x / sqrt(square / (double)row + eps)
                                             : (x - mean) / sqrt(deviation / (double)row + eps);
            const int64_t *tail = node->op == DYCL_OP_group_norm ? &index[1] : &index[first];
            int count = node->op == DYCL_OP_group_norm ? 1 : (int)attrs[0];
            if (o[1] != DYCL_NONE) x *= ref_get(r, o[1], tail, count);
            if (node->op != DYCL_OP_rms_norm && o[2] != DYCL_NONE) x += ref_get(r, o[2], tail, count);
            ref_set(r, node->out, index, x);
            ref_next(index, in->sizes, rank);
        }
    }
}

static void ref_window(reference *r, const dycl_node *node, const uint32_t *o, const int64_t *at) {
    const dycl_value *x = &r->graph->values[o[0]], *out = &r->graph->values[node->out];
    int64_t index[8] = {0};
    for (int64_t i = 0, n = dycl_value_numel(out); i < n; i++, ref_next(index, out->sizes, 4)) {
        double sum = 0, most = -INFINITY;
        if (node->op == DYCL_OP_conv_transpose2d) {
            const dycl_value *w = &r->graph->values[o[1]];
            int64_t per = w->sizes[1], inner = x->sizes[1] / at[6], group = index[1] / per;
            if (o[2] != DYCL_NONE) sum = ref_get(r, o[2], &index[1], 1);
            for (int64_t c = group * inner; c < (group + 1) * inner; c++)
                for (int64_t y = 0; y < w->sizes[2]; y++)
                    for (int64_t z = 0; z < w->sizes[3]; z++) {
                        int64_t row = index[2] + at[2] - y * at[4], column = index[3] + at[3] - z * at[5];
                        int64_t p[4] = {index[0], c, row / at[0], column / at[1]}, q[4] = {c, index[1] % per, y, z};
                        if (row < 0 || column < 0 || row % at[0] || column % at[1]) continue;
                        if (p[2] >= x->sizes[2] || p[3] >= x->sizes[3]) continue;
                        sum += ref_get(r, o[0], p, 4) * ref_get(r, o[1], q, 4);
                    }
            ref_set(r, node->out, index, sum);
            continue;
        }
        if (node->op == DYCL_OP_conv2d) {
            const dycl_value *w = &r->graph->values[o[1]];
            int64_t per = w->sizes[1], group = index[1] / (w->sizes[0] / at[6]);
            if (o[2] != DYCL_NONE) sum = ref_get(r, o[2], &index[1], 1);
            for (int64_t c = 0; c < per; c++)
                for (int64_t y = 0; y < w->sizes[2]; y++)
                    for (int64_t z = 0; z < w->sizes[3]; z++) {
                        int64_t p[4] = {index[0], group * per + c, index[2] * at[0] - at[2] + y * at[4],
                                        index[3] * at[1] - at[3] + z * at[5]};
                        int64_t q[4] = {index[1], c, y, z};
                        if (p[2] < 0 || p[3] < 0 || p[2] >= x->sizes[2] || p[3] >= x->sizes[3]) continue;
                        sum += ref_get(r, o[0], p, 4) * ref_get(r, o[1], q, 4);
                    }
            ref_set(r, node->out, index, sum);
            continue;
        }
        int64_t from[2], to[2], step[2] = {1, 1}, area = 1, count = 0;
        for (int d = 0; d < 2; d++) {
            int64_t size = x->sizes[2 + d], k = index[2 + d];
            if (node->op == DYCL_OP_adaptive_avg_pool2d) {
                from[d] = k * size / at[d];
                to[d] = ((k + 1) * size + at[d] - 1) / at[d];
                area = 0;
                continue;
            }
            step[d] = node->op == DYCL_OP_max_pool2d ? at[6 + d] : 1;
            from[d] = k * at[2 + d] - at[4 + d];
            to[d] = from[d] + (at[d] - 1) * step[d] + 1;
            area *= (to[d] < size + at[4 + d] ? to[d] : size + at[4 + d]) - from[d];
        }
        for (int64_t y = from[0]; y < to[0]; y += step[0])
            for (int64_t z = from[1]; z < to[1]; z += step[1]) {
                int64_t p[4] = {index[0], index[1], y, z};
                if (y < 0 || z < 0 || y >= x->sizes[2] || z >= x->sizes[3]) continue;
                double v = ref_get(r, o[0], p, 4);
                sum += v;
                most = fmax(most, v);
                count++;
            }
        if (node->op == DYCL_OP_max_pool2d)
            ref_set(r, node->out, index, most);
        else
            ref_set(r, node->out, index, sum / (double)(node->op == DYCL_OP_avg_pool2d && at[7] ? area : count));
    }
}

static void ref_product(reference *r, const dycl_node *node, const uint32_t *o) {
    const dycl_value *a = &r->graph->values[o[0]], *out = &r->graph->values[node->out];
    int64_t index[8] = {0}, k = a->sizes[a->rank - 1];
    int rank = out->rank;
    for (int64_t i = 0, n = dycl_value_numel(out); i < n; i++, ref_next(index, out->sizes, rank)) {
        double sum = 0;
        int64_t left[8], right[8];
        memcpy(left, index, sizeof left);
        memcpy(right, index, sizeof right);
        for (int64_t j = 0; j < k; j++) {
            left[rank - 1] = j;
            if (node->op == DYCL_OP_linear) {
                int64_t w[2] = {index[rank - 1], j};
                sum += ref_get(r, o[0], left, rank) * ref_get(r, o[1], w, 2);
            } else {
                right[rank - 2] = j;
                sum += ref_get(r, o[0], left, rank) * ref_get(r, o[1], right, rank);
            }
        }
        if (node->op == DYCL_OP_linear && o[2] != DYCL_NONE) sum += ref_get(r, o[2], &index[rank - 1], 1);
        ref_set(r, node->out, index, sum);
    }
}

static void ref_attention(reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_graph *g = r->graph;
    const dycl_value *q = &g->values[o[0]], *k = &g->values[o[1]], *v = &g->values[o[2]];
    int64_t keys = k->sizes[2], group = q->sizes[1] / k->sizes[1];
    double *score = malloc((size_t)keys * sizeof(double)), scale = dycl_attr_f64(attrs[1]);
    for (int64_t b = 0; b < q->sizes[0]; b++)
        for (int64_t h = 0; h < q->sizes[1]; h++)
            for (int64_t l = 0; l < q->sizes[2]; l++) {
                double most = -INFINITY, sum = 0;
                for (int64_t s = 0; s < keys; s++) {
                    double x = 0;
                    for (int64_t e = 0; e < q->sizes[3]; e++) {
                        int64_t at[4] = {b, h, l, e}, to[4] = {b, h / group, s, e};
                        x += ref_get(r, o[0], at, 4) * ref_get(r, o[1], to, 4);
                    }
                    x *= scale;
                    if (attrs[0] && s > l) x = -INFINITY;
                    if (o[3] != DYCL_NONE) {
                        int64_t at[4] = {b, h, l, s};
                        double m = ref_get(r, o[3], at, 4);
                        x = g->values[o[3]].dtype == DYCL_BOOL ? (m != 0 ? x : -INFINITY) : x + m;
                    }
                    score[s] = x;
                    most = fmax(most, x);
                }
                for (int64_t s = 0; s < keys; s++) sum += score[s] = exp(score[s] - most);
                for (int64_t e = 0; e < v->sizes[3]; e++) {
                    double x = 0;
                    for (int64_t s = 0; s < keys; s++) {
                        int64_t at[4] = {b, h / group, s, e};
                        x += score[s] / sum * ref_get(r, o[2], at, 4);
                    }
                    int64_t to[4] = {b, h, l, e};
                    ref_set(r, node->out, to, x);
                }
            }
    free(score);
}

static void ref_move(reference *r, const dycl_node *node, const uint32_t *o, const int64_t *attrs) {
    const dycl_graph *g = r->graph;
    const dycl_value *out = &g->values[node->out], *x = &g->values[o[0]];
    int64_t index[8] = {0};
    int rank = out->rank;
    for (int64_t i = 0, n = dycl_value_numel(out); i < n; i++, ref_next(index, out->sizes, rank)) {
        int64_t at[8];
        double value = 0;
        memcpy(at, index, sizeof at);
        switch (node->op) {
        case DYCL_OP_contiguous:
        case DYCL_OP_cast: value = ref_get(r, o[0], index, rank); break;
        case DYCL_OP_embedding: {
            const dycl_value *t = &g->values[o[1]];
            at[0] = (int64_t)ref_get(r, o[1], index, t->rank);
            memcpy(&at[1], &index[t->rank], (size_t)(x->rank - 1) * sizeof(int64_t));
            if (at[0] < 0 || at[0] >= x->sizes[0])
                r->bad_index = 1;
            else
                value = ref_get(r, o[0], at, x->rank);
            break;
        }
        case DYCL_OP_index_select:
        case DYCL_OP_gather: {
            int64_t *to = &at[attrs[0]];
            *to = (int64_t)(node->op == DYCL_OP_gather ? ref_get(r, o[1], index, rank) : ref_get(r, o[1], to, 1));
            if (*to < 0 || *to >= x->sizes[attrs[0]])
                r->bad_index = 1;
            else
                value = ref_get(r, o[0], at, rank);
            break;
        }
        case DYCL_OP_cat: {
            int k = 0;
            while (at[attrs[0]] >= g->values[o[k]].sizes[attrs[0]]) at[attrs[0]] -= g->values[o[k++]].sizes[attrs[0]];
            value = ref_get(r, o[k], at, rank);
            break;
        }
        case DYCL_OP_pad: {
            int inside = 1;
            for (int d = 0; d < rank; d++) {
                at[d] -= attrs[d];
                inside &= at[d] >= 0 && at[d] < x->sizes[d];
            }
            value = inside ? ref_get(r, o[0], at, rank) : ref_get(r, o[1], at, rank);
            break;
        }
        case DYCL_OP_tril:
            value = index[rank - 1] - index[rank - 2] <= attrs[0] ? ref_get(r, o[0], index, rank) : 0;
            break;
        case DYCL_OP_triu:
            value = index[rank - 1] - index[rank - 2] >= attrs[0] ? ref_get(r, o[0], index, rank) : 0;
            break;
        case DYCL_OP_full: value = ref_get(r, o[0], index, 0); break;
        case DYCL_OP_iota: value = ref_get(r, o[0], index, 0) + (double)i * ref_get(r, o[1], index, 0); break;
        default: abort();
        }
        ref_set(r, node->out, index, value);
    }
}

static void ref_run(reference *r, const dycl_graph *g, void *const *feeds, const dycl_scalar *scalars) {
    r->graph = g;
    r->bad_index = 0;
    r->data = calloc(g->value_count + 1, sizeof(void *));
    r->owned = calloc(g->value_count + 1, 1);
    for (uint32_t i = 0; i < g->feed_count; i++) r->data[g->feeds[i]] = feeds[i];
    for (uint32_t i = 0; i < g->scalar_count; i++) r->data[g->scalars[i]] = (void *)(uintptr_t)&scalars[i];
    for (uint32_t n = 0; n < g->node_count; n++) {
        const dycl_node *node = &g->nodes[n];
        const uint32_t *o = dycl_node_operands(g, node);
        const int64_t *attrs = dycl_node_attrs(g, node);
        const dycl_value *out = &g->values[node->out];
        if (node->op == DYCL_OP_view) continue;
        r->data[node->out] = calloc((size_t)dycl_value_numel(out) + 1, 8);
        r->owned[node->out] = 1;
        if (dycl_value_numel(out) == 0) continue;
        switch (dycl_op_get((dycl_op)node->op)->family) {
        case DYCL_FAMILY_EW: {
            int64_t index[8] = {0};
            for (int64_t i = 0, count = dycl_value_numel(out); i < count; i++, ref_next(index, out->sizes, out->rank)) {
                double x[3] = {0};
                for (int k = 0; k < node->operand_count; k++) x[k] = ref_get(r, o[k], index, out->rank);
                ref_set(r, node->out, index, ref_ew(node->op, x[0], x[1], x[2]));
            }
            break;
        }
        case DYCL_FAMILY_REDUCE: ref_reduce(r, node, o, attrs); break;
        case DYCL_FAMILY_ROW: ref_row(r, node, o, attrs); break;
        case DYCL_FAMILY_NORM: ref_norm(r, node, o, attrs); break;
        case DYCL_FAMILY_CONV:
        case DYCL_FAMILY_POOL: ref_window(r, node, o, attrs); break;
        case DYCL_FAMILY_MATMUL: ref_product(r, node, o); break;
        case DYCL_FAMILY_ATTENTION: ref_attention(r, node, o, attrs); break;
        default: ref_move(r, node, o, attrs);
        }
    }
}

static void ref_free(reference *r) {
    for (uint32_t v = 0; v < r->graph->value_count; v++)
        if (r->owned[v]) free(r->data[v]);
    free(r->data);
    free(r->owned);
}

#endif
