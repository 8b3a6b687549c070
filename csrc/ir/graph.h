/* A trace as a graph in SSA form: nodes in program order, values by index.
 *
 * Ownership: a dycl_graph owns its arrays; dycl_graph_reset keeps the memory. References inside are uint32_t indices.
 *
 * Threads: one at a time.
 * The same bytes mean the same trace: dycl_graph_hash/equal compare nodes, operands, attributes and the metadata of
 * feeds; what a node's outputs look like follows from these. */
#ifndef DYCL_IR_GRAPH_H
#define DYCL_IR_GRAPH_H

#include "base/dtype.h"
#include "base/status.h"
#include "kern/kern.h"
#include "kern/recurrent.h"

#define DYCL_NONE         UINT32_MAX
#define DYCL_MAX_OPERANDS 64
#define DYCL_MAX_ATTRS    64

typedef enum {
#define DYCL_KERN_EW(name, n, classes, result) DYCL_OP_##name,
#include "kern/kern.def"
#undef DYCL_KERN_EW
    DYCL_OP_EW_END_ = DYCL_EW_COUNT - 1,
#define DYCL_OP(name, ...) DYCL_OP_##name,
#include "ir/ops.def"
#undef DYCL_OP
    DYCL_HOSTED_FIRST,
    DYCL_HOSTED_BEGIN_ = DYCL_HOSTED_FIRST - 1, /* operators of hosted.def (ir/hosted.h) from here on */
#define DYCL_HOSTED(row, schema, overload, out, results, work, parameters) DYCL_OP_aten_##row,
#include "ir/hosted.def"
#undef DYCL_HOSTED
    DYCL_OP_COUNT
} dycl_op;

typedef enum {
#define DYCL_FAMILY(NAME, name, ...) DYCL_FAMILY_##NAME,
#include "ir/family.def"
#undef DYCL_FAMILY
    DYCL_FAMILY_COUNT
} dycl_family;
typedef enum { DYCL_MAP_O2O, DYCL_MAP_O2M, DYCL_MAP_M2M, DYCL_MAP_REORG, DYCL_MAP_SHUF } dycl_mapping;

typedef struct {
    const char *name;
    dycl_family family;
    dycl_mapping mapping;
    int min_operands, max_operands, attrs; /* attrs -1: depends on the rank, and in hosted operators on more */
    unsigned optional, doubles;            /* by bit: operands that may be absent, attributes that are doubles */
} dycl_op_info;
const dycl_op_info *dycl_op_get(dycl_op op);
static inline int dycl_op_is_batch_norm(dycl_op op) { /* x, two vectors of statistics, weight*, bias* */
    return op == DYCL_OP_batch_norm || op == DYCL_OP_batch_norm_train;
}
dycl_red dycl_red_of(dycl_op op); /* the kernel of a reduction */

typedef enum { DYCL_VALUE_FEED, DYCL_VALUE_SCALAR, DYCL_VALUE_NODE } dycl_value_kind;

typedef struct {
    uint8_t kind, dtype, rank;
    uint8_t canonical; /* 1: not empty, and the strides are dycl_strides_contiguous's */
    uint32_t source;   /* FEED: position among the feeds; SCALAR: among the scalars; NODE: the node */
    uint32_t root;     /* the value that owns the storage: itself, unless a view (or a view of a view...) */
    int64_t offset;    /* elements from the root's first element */
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK]; /* entries past the rank are 0 */
} dycl_value;

typedef struct {
    uint16_t op;
    uint16_t operand_count;
    uint16_t attr_count;
    uint16_t unused;
    uint32_t operands, attrs; /* where they begin in graph->operands, graph->attrs */
    uint32_t out;             /* the value it makes (every node makes one) */
} dycl_node;

typedef union {
    double f64;
    float f32;
    int64_t i64;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
} dycl_scalar; /* first bytes hold the element in the dtype of its value; floats of 16 bits: as f32 */

/* What the user asked of the model whose trace it is: part of its identity, not of its text. */
enum {
    DYCL_OPTION_NO_PACK = 1, /* no second copy of a weight */
    DYCL_OPTION_BF16 = 2,    /* constant weights and their products in bfloat16 */
};

typedef struct dycl_graph {
    dycl_node *nodes;
    dycl_value *values;
    uint32_t *operands;
    int64_t *attrs;
    uint32_t *feeds;   /* value of each feed */
    uint32_t *scalars; /* value of each scalar */
    uint32_t node_count, value_count, operand_count, attr_count, feed_count, scalar_count;
    uint32_t node_room, value_room, operand_room, attr_room, feed_room, scalar_room;
    struct dycl_expectation *expectation; /* owned; NULL: never expected anything */
    uint32_t options;                     /* DYCL_OPTION_ bits; a reset keeps them */
    int expecting;                        /* 1: the arrays are those of the expected graph and are only read */
} dycl_graph;

void dycl_graph_init(dycl_graph *graph);
void dycl_graph_reset(dycl_graph *graph);
size_t dycl_graph_bytes(const dycl_graph *graph); /* of its arrays */
void dycl_graph_free(dycl_graph *graph);
dycl_status dycl_graph_copy(dycl_graph *to, const dycl_graph *from); /* `to` must be initialised and empty */

dycl_status dycl_graph_feed(dycl_graph *graph, dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides,
                            uint32_t *out_value);
dycl_status dycl_graph_scalar(dycl_graph *graph, dycl_dtype dtype,
                              uint32_t *out_value); /* its value is bound at execution */

/* Expects the graph (empty now) to become one of these, most likely first: while what is appended is what stands there
 * already, it is compared instead of inferred and written. The expected graphs are borrowed: they must not change until
 * the reset. At most DYCL_GRAPH_EXPECTED count. */
#define DYCL_GRAPH_EXPECTED 4
dycl_status dycl_graph_expect(dycl_graph *graph, int count, const dycl_graph *const *expected);
const dycl_graph *dycl_graph_expected(const dycl_graph *graph); /* the one that it is a beginning of; NULL: none */

/* Appends a node and infers its output. BAIL (nothing appended) when the operands are outside what the operator
 * represents. */
dycl_status dycl_graph_node(dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands, int attr_count,
                            const int64_t *attrs, uint32_t *out_value);

/* Appends a node whose result looks as `look` says, whatever inference says; its root is itself. */
dycl_status dycl_graph_node_laid(dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands,
                                 int attr_count, const int64_t *attrs, const dycl_value *look, uint32_t *out_value);

/* The value as the backward pass gets it, if it lies otherwise there (DYCL_OP_laid, behind all that was recorded), or
 * DYCL_NONE; and whether `whole` is the graph with nothing behind it but such. */
uint32_t dycl_graph_laid(const dycl_graph *graph, uint32_t value);
int dycl_graph_lays(const dycl_graph *whole, const dycl_graph *graph);

uint64_t dycl_graph_hash(const dycl_graph *graph);
uint64_t dycl_graph_key(const dycl_graph *graph, const uint32_t *outputs, int output_count); /* of a segment */
int dycl_graph_equal(const dycl_graph *a, const dycl_graph *b);
int dycl_graph_begins(const dycl_graph *whole,
                      const dycl_graph *beginning); /* whether one is a beginning of the other */

static inline const uint32_t *dycl_node_operands(const dycl_graph *g, const dycl_node *n) {
    return g->operands + n->operands;
}
static inline const int64_t *dycl_node_attrs(const dycl_graph *g, const dycl_node *n) { return g->attrs + n->attrs; }
static inline int dycl_value_is_made_by(const dycl_graph *g, uint32_t value, dycl_op op) {
    const dycl_value *v = &g->values[value];
    return v->kind == DYCL_VALUE_NODE && g->nodes[v->source].op == op;
}
static inline double dycl_attr_f64(int64_t word) {
    union {
        int64_t i;
        double d;
    } u = {word};
    return u.d;
}
static inline int64_t dycl_f64_attr(double value) {
    union {
        double d;
        int64_t i;
    } u = {value};
    return u.i;
}
/* conv2d, conv_transpose2d or conv2d_back: each window sees the whole image, so that one product does it. */
int dycl_conv_is_whole(const dycl_graph *graph, const dycl_node *node);
uint32_t dycl_graph_maker(
    const dycl_graph *graph,
    uint32_t value); /* the node all of whose elements the value has, in their order; DYCL_NONE: there is none */
int64_t dycl_value_numel(const dycl_value *value);
/* At most so many elements, counted without overflow. What is larger is left to the program's own library, which has
 * the memory or raises its error. */
int dycl_value_fits(const dycl_value *value, int64_t most);
#define DYCL_MAX_ELEMENTS (INT64_C(1) << 33)        /* of a result */
int dycl_value_contiguous(const dycl_value *value); /* torch's rule: size-1 dimensions do not count */
int64_t dycl_value_extent(const dycl_value *value); /* elements from the first to one past the last, 0 when empty */
size_t dycl_value_bytes(const dycl_value *value);   /* of that extent */
int dycl_strides_canonical(const dycl_value *value);
void dycl_strides_contiguous(int rank, const int64_t *sizes, int64_t *out_strides);

/* ---- Shape inference of one node (infer*.c); `out` has kind, source and root set by the caller. */
dycl_status dycl_infer(const dycl_graph *graph, dycl_op op, int operand_count, const uint32_t *operands, int attr_count,
                       const int64_t *attrs, dycl_value *out);

/* ---- Verifier: OK, or ERROR with a message. Debug builds call it after each pass. */
dycl_status dycl_graph_verify(const dycl_graph *graph);

/* ---- Text form. Printing allocates *out (dycl_free). Parsing gives back an equal graph. */
dycl_status dycl_graph_print(const dycl_graph *graph, char **out);
/* One line of it, without the line's end; the graph may be half way through the passes. Freed like the above. */
dycl_status dycl_graph_print_value(const dycl_graph *graph, uint32_t value, char **out);
dycl_status dycl_graph_parse(const char *text, dycl_graph *out);
/* The same of a graph half way through the passes: its values lie where passes laid them (":=", print.c), numbers may
 * have gaps. What comes of it is to be looked at, not to be run. */
dycl_status dycl_graph_print_laid(const dycl_graph *graph, char **out);
dycl_status dycl_graph_parse_laid(const char *text, dycl_graph *out);
/* A line for a value that lies in its root, whatever made it once: a view. */
dycl_status dycl_graph_print_alias(const dycl_graph *graph, uint32_t value, char **out);

#endif
