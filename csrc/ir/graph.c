#include "ir/graph.h"

#include <string.h>

#include "base/alloc.h"
#include "ir/expect.h"

void dycl_graph_init(dycl_graph *graph) { memset(graph, 0, sizeof *graph); }

void dycl_graph_reset(dycl_graph *graph) {
    if (graph->expecting) dycl_expect_end(graph);
    graph->node_count = graph->value_count = graph->operand_count = graph->attr_count = graph->feed_count =
        graph->scalar_count = 0;
}

void dycl_graph_free(dycl_graph *graph) {
    if (graph->expecting) dycl_expect_end(graph);
    dycl_free(graph->expectation);
    dycl_free(graph->nodes);
    dycl_free(graph->values);
    dycl_free(graph->operands);
    dycl_free(graph->attrs);
    dycl_free(graph->feeds);
    dycl_free(graph->scalars);
    dycl_graph_init(graph);
}

size_t dycl_graph_bytes(const dycl_graph *g) {
    return g->node_room * sizeof *g->nodes + g->value_room * sizeof *g->values + g->operand_room * sizeof *g->operands +
           g->attr_room * sizeof *g->attrs + g->feed_room * sizeof *g->feeds + g->scalar_room * sizeof *g->scalars;
}

static dycl_status grow(void **array, uint32_t *room, uint32_t wanted, size_t element) {
    return dycl_make_room(array, room, wanted, element) ? DYCL_OK
                                                        : dycl_error_set("out of memory while growing a graph");
}

/* A copy mostly stays what it is: room for no more than is there. */
static dycl_status fit(void **array, uint32_t *room, uint32_t wanted, size_t element) {
    if (wanted <= *room) return DYCL_OK;
    void *block = dycl_realloc(*array, wanted * element);
    if (!block) return dycl_error_set("out of memory while copying a graph");
    *array = block;
    *room = wanted;
    return DYCL_OK;
}

#define GROW(graph, what, extra)                                                                                       \
    grow((void **)&(graph)->what##s, &(graph)->what##_room, (graph)->what##_count + (uint32_t)(extra),                 \
         sizeof *(graph)->what##s)

#define COPY_ARRAY(what)                                                                                               \
    DYCL_TRY(fit((void **)&to->what##s, &to->what##_room, from->what##_count, sizeof *to->what##s));                   \
    if (from->what##_count) memcpy(to->what##s, from->what##s, from->what##_count * sizeof *from->what##s)

dycl_status dycl_graph_copy_arrays(dycl_graph *to, const dycl_graph *from) {
    dycl_status status;
    COPY_ARRAY(node);
    COPY_ARRAY(value);
    COPY_ARRAY(operand);
    COPY_ARRAY(attr);
    COPY_ARRAY(feed);
    COPY_ARRAY(scalar);
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_graph_copy(dycl_graph *to, const dycl_graph *from) {
    dycl_status status = dycl_graph_copy_arrays(to, from);
    to->options = from->options;
    if (status != DYCL_OK) {
        dycl_graph_free(to);
        return status;
    }
    to->node_count = from->node_count;
    to->value_count = from->value_count;
    to->operand_count = from->operand_count;
    to->attr_count = from->attr_count;
    to->feed_count = from->feed_count;
    to->scalar_count = from->scalar_count;
    return DYCL_OK;
}

static const dycl_value
    blank; /* copied, because compilers clear 152 bytes with an instruction that takes 30 cycles to start */

dycl_status dycl_graph_feed(dycl_graph *graph, dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                            uint32_t *out_value) {
    dycl_status status;
    if (rank > DYCL_MAX_RANK) return DYCL_BAIL;
    if (graph->expecting) {
        if (dycl_expect_feed(graph, dtype, rank, sizes, strides, out_value)) return DYCL_OK;
        DYCL_TRY(dycl_expect_diverge(graph));
    }
    DYCL_TRY(GROW(graph, value, 1));
    DYCL_TRY(GROW(graph, feed, 1));
    uint32_t id = graph->value_count++;
    dycl_value *value = &graph->values[id];
    *value = blank;
    value->kind = DYCL_VALUE_FEED;
    value->dtype = (uint8_t)dtype;
    value->rank = (uint8_t)rank;
    value->source = graph->feed_count;
    value->root = id;
    for (int i = 0; i < rank; i++) {
        value->sizes[i] = sizes[i];
        value->strides[i] = strides[i];
    }
    value->canonical = (uint8_t)dycl_strides_canonical(value);
    graph->feeds[graph->feed_count++] = id;
    *out_value = id;
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_graph_scalar(dycl_graph *graph, dycl_dtype dtype, uint32_t *out_value) {
    dycl_status status;
    if (graph->expecting) {
        if (dycl_expect_scalar(graph, dtype, out_value)) return DYCL_OK;
        DYCL_TRY(dycl_expect_diverge(graph));
    }
    DYCL_TRY(GROW(graph, value, 1));
    DYCL_TRY(GROW(graph, scalar, 1));
    uint32_t id = graph->value_count++;
    dycl_value *value = &graph->values[id];
    *value = blank;
    value->kind = DYCL_VALUE_SCALAR;
    value->dtype = (uint8_t)dtype;
    value->source = graph->scalar_count;
    value->root = id;
    graph->scalars[graph->scalar_count++] = id;
    *out_value = id;
    return DYCL_OK;
fail:
    return status;
}

static dycl_status make_room(dycl_graph *graph, int operand_count, int attr_count) {
    dycl_status status;
    DYCL_TRY(GROW(graph, node, 1));
    DYCL_TRY(GROW(graph, value, 1));
    DYCL_TRY(GROW(graph, operand, operand_count));
    DYCL_TRY(GROW(graph, attr, attr_count));
    return DYCL_OK;
fail:
    return status;
}

/* Where there is room, and the value is there. */
static inline void append(dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands, int attr_count,
                          const int64_t *attrs) {
    dycl_node *node = &graph->nodes[graph->node_count++];
    node->op = (uint16_t)op;
    node->operand_count = (uint16_t)operand_count;
    node->attr_count = (uint16_t)attr_count;
    node->unused = 0;
    node->operands = graph->operand_count;
    node->attrs = graph->attr_count;
    node->out = graph->value_count++;
    for (int i = 0; i < operand_count; i++) graph->operands[graph->operand_count++] = operands[i];
    for (int i = 0; i < attr_count; i++) graph->attrs[graph->attr_count++] = attrs[i];
}

dycl_status dycl_graph_node(dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands, int attr_count,
                            const int64_t *attrs, uint32_t *out_value) {
    dycl_status status;
    if (graph->expecting) {
        if (dycl_expect_node(graph, op, operand_count, operands, attr_count, attrs, out_value)) return DYCL_OK;
        DYCL_TRY(dycl_expect_diverge(graph));
    }
    if (__builtin_expect(graph->node_count == graph->node_room || graph->value_count == graph->value_room ||
                             graph->operand_count + (uint32_t)operand_count > graph->operand_room ||
                             graph->attr_count + (uint32_t)attr_count > graph->attr_room,
                         0))
        DYCL_TRY(make_room(graph, operand_count, attr_count));
    uint32_t id = graph->value_count;
    dycl_value *value = &graph->values[id];
    value->kind = DYCL_VALUE_NODE; /* the rest is the shape function's */
    value->source = graph->node_count;
    value->root = id;
    value->offset = 0;
    DYCL_TRY(dycl_infer(graph, op, operand_count, operands, attr_count, attrs, value));
    if (!dycl_value_fits(value, value->root == id ? DYCL_MAX_ELEMENTS : INT64_MAX / 16)) return DYCL_BAIL;
    append(graph, op, operand_count, operands, attr_count, attrs);
    *out_value = id;
    return DYCL_OK;
fail:
    return status;
}

dycl_status dycl_graph_node_laid(dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands,
                                 int attr_count, const int64_t *attrs, const dycl_value *look, uint32_t *out_value) {
    dycl_status status;
    DYCL_TRY(make_room(graph, operand_count, attr_count));
    uint32_t id = graph->value_count;
    graph->values[id] = *look;
    graph->values[id].kind = DYCL_VALUE_NODE;
    graph->values[id].source = graph->node_count;
    graph->values[id].root = id;
    append(graph, op, operand_count, operands, attr_count, attrs);
    *out_value = id;
    return DYCL_OK;
fail:
    return status;
}

/* ---- Hash and equality over what defines a trace */

static inline uint64_t mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static uint64_t mix_bytes(uint64_t h, const void *bytes, size_t size) {
    const unsigned char *p = bytes;
    uint64_t word;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = mix(h, word);
    }
    if (size) {
        word = 0;
        memcpy(&word, p, size);
        h = mix(h, word);
    }
    return h;
}

uint64_t dycl_graph_hash(const dycl_graph *g) {
    uint64_t h = mix(UINT64_C(0x243f6a8885a308d3), ((uint64_t)g->node_count << 32) | g->value_count);
    if (g->options) h = mix(h, g->options);
    h = mix_bytes(h, g->nodes, g->node_count * sizeof *g->nodes);
    h = mix_bytes(h, g->operands, g->operand_count * sizeof *g->operands);
    h = mix_bytes(h, g->attrs, g->attr_count * sizeof *g->attrs);
    for (uint32_t i = 0; i < g->feed_count; i++)
        h = mix_bytes(mix(h, g->feeds[i]), &g->values[g->feeds[i]], sizeof(dycl_value));
    for (uint32_t i = 0; i < g->scalar_count; i++)
        h = mix(h, ((uint64_t)g->scalars[i] << 8) | g->values[g->scalars[i]].dtype);
    return h;
}

uint64_t dycl_graph_key(const dycl_graph *g, const uint32_t *outputs, int output_count) {
    uint64_t h = dycl_graph_hash(g);
    for (int i = 0; i < output_count; i++) h = (h ^ outputs[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return h;
}

static int same(const void *a, const void *b, size_t size) { return size == 0 || memcmp(a, b, size) == 0; }

int dycl_graph_begins(const dycl_graph *a, const dycl_graph *b) {
    if (a->options != b->options || a->node_count < b->node_count || a->value_count < b->value_count ||
        a->operand_count < b->operand_count || a->attr_count < b->attr_count || a->feed_count < b->feed_count ||
        a->scalar_count < b->scalar_count)
        return 0;
    if (a->nodes == b->nodes && a->values == b->values && b->value_count) return 1; /* one of them expects the other */
    if (!same(a->nodes, b->nodes, b->node_count * sizeof *b->nodes) ||
        !same(a->operands, b->operands, b->operand_count * sizeof *b->operands) ||
        !same(a->attrs, b->attrs, b->attr_count * sizeof *b->attrs) ||
        !same(a->feeds, b->feeds, b->feed_count * sizeof *b->feeds) ||
        !same(a->scalars, b->scalars, b->scalar_count * sizeof *b->scalars))
        return 0;
    for (uint32_t i = 0; i < b->feed_count; i++) {
        const dycl_value *x = &a->values[a->feeds[i]], *y = &b->values[b->feeds[i]];
        if (memcmp(x, y, sizeof *x) != 0) return 0;
    }
    for (uint32_t i = 0; i < b->scalar_count; i++)
        if (a->values[a->scalars[i]].dtype != b->values[b->scalars[i]].dtype) return 0;
    return 1;
}

uint32_t dycl_graph_laid(const dycl_graph *g, uint32_t value) {
    for (uint32_t n = g->node_count; n-- > 0 && g->nodes[n].op == DYCL_OP_laid;)
        if (dycl_node_operands(g, &g->nodes[n])[0] == value) return g->nodes[n].out;
    return DYCL_NONE;
}

int dycl_graph_lays(const dycl_graph *whole, const dycl_graph *graph) {
    uint32_t n = whole->node_count;
    while (n > graph->node_count && whole->nodes[n - 1].op == DYCL_OP_laid) n--;
    return n == graph->node_count && whole->value_count - graph->value_count == whole->node_count - n &&
           whole->feed_count == graph->feed_count && whole->scalar_count == graph->scalar_count &&
           dycl_graph_begins(whole, graph);
}

int dycl_graph_equal(const dycl_graph *a, const dycl_graph *b) {
    return a->node_count == b->node_count && a->value_count == b->value_count && a->operand_count == b->operand_count &&
           a->attr_count == b->attr_count && a->feed_count == b->feed_count && a->scalar_count == b->scalar_count &&
           dycl_graph_begins(a, b);
}

/* ---- Values */

int64_t dycl_value_numel(const dycl_value *value) {
    int64_t n = 1;
    for (int i = 0; i < value->rank; i++) n *= value->sizes[i];
    return n;
}

int dycl_value_fits(const dycl_value *value, int64_t most) {
    int64_t n = 1;
    int fits = 1;
    for (int i = 0; i < value->rank; i++) {
        if (value->sizes[i] == 0) return 1;
        fits &= !__builtin_mul_overflow(n, value->sizes[i], &n) && n <= most;
    }
    return fits;
}

int dycl_value_contiguous(const dycl_value *value) {
    int64_t expected = 1;
    for (int i = value->rank - 1; i >= 0; i--) {
        if (value->sizes[i] == 0) return 1;
        if (value->sizes[i] == 1) continue;
        if (value->strides[i] != expected) {
            for (int k = i - 1; k >= 0; k--)
                if (value->sizes[k] == 0) return 1;
            return 0;
        }
        expected *= value->sizes[i];
    }
    return 1;
}

size_t dycl_value_bytes(const dycl_value *value) {
    return (size_t)dycl_value_extent(value) * dycl_dtype_size((dycl_dtype)value->dtype);
}

int64_t dycl_value_extent(const dycl_value *value) {
    int64_t last = 1;
    for (int i = 0; i < value->rank; i++) {
        if (value->sizes[i] == 0) return 0;
        last += (value->sizes[i] - 1) * value->strides[i];
    }
    return last;
}

int dycl_strides_canonical(const dycl_value *value) {
    int64_t stride = 1;
    for (int i = value->rank - 1; i >= 0; i--) {
        if (value->strides[i] != stride || value->sizes[i] == 0) return 0;
        stride *= value->sizes[i];
    }
    return 1;
}

void dycl_strides_contiguous(int rank, const int64_t *sizes, int64_t *out_strides) {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        out_strides[i] = stride;
        stride *= sizes[i] > 1 ? sizes[i] : 1;
    }
}

uint32_t dycl_graph_maker(const dycl_graph *g, uint32_t value) {
    const dycl_value *v = &g->values[value], *root = &g->values[v->root];
    return root->kind == DYCL_VALUE_NODE && v->canonical && root->canonical && v->offset == 0 &&
                   dycl_value_numel(v) == dycl_value_numel(root)
               ? root->source
               : DYCL_NONE;
}
