/* The reference interpreter: a graph node by node, by definition, in plain loops over strides. No kernel, no layout, no
 * fusion, no plan; it shares nothing with csrc/kern and csrc/exec but the graph, so that what both say is right.
 *
 * Ownership: a reference owns what it computed and borrows graph, feeds and scalars. Threads: one at a time. */
#ifndef DYCL_CHECK_REFERENCE_H
#define DYCL_CHECK_REFERENCE_H

#include "check/number.h"

typedef struct {
    const dycl_graph *graph;
    dycl_number **elements; /* root value -> its memory, element by element; NULL: not needed */

} dycl_reference;

/* What feeds a graph: the first element of each feed. */
typedef struct {
    const void *const *feeds;
    const dycl_scalar *scalars;
} dycl_reference_inputs;

double dycl_reference_work(const dycl_graph *graph, const uint32_t *outputs,
                           int output_count); /* what running would be, before it is done */
/* Computes the outputs. BAIL: an index out of range, or an operator without a definition here. */
dycl_status dycl_reference_run(dycl_reference *r, const dycl_graph *graph, const uint32_t *outputs, int output_count,
                               const dycl_reference_inputs *inputs);
void dycl_reference_free(dycl_reference *r);

/* ---- For the families' files (move.c, reduce.c, product.c, window.c) */

/* An operand that broadcasts to a shape of `rank` dimensions. */
dycl_number dycl_reference_get(const dycl_reference *r, uint32_t value, const int64_t *index, int rank);
/* The same element, and how far it is from there to the next along dimension `dim` of that shape: for long sums. */
const dycl_number *dycl_reference_line(const dycl_reference *r, uint32_t value, const int64_t *index, int rank, int dim,
                                       int64_t *step);
void dycl_reference_set(dycl_reference *r, uint32_t value, const int64_t *index,
                        dycl_number x); /* index: of the value's own shape */
int dycl_reference_next(int64_t *index, const int64_t *sizes,
                        int rank); /* the next index in row-major order; 0 behind the last, which is the first again */
static inline const dycl_value *dycl_reference_value(const dycl_reference *r, uint32_t v) {
    return &r->graph->values[v];
}
static inline dycl_dtype dycl_reference_dtype(const dycl_reference *r, uint32_t v) {
    return (dycl_dtype)r->graph->values[v].dtype;
}

/* A sum of terms as any order and blocking may round it. */
typedef struct {
    double sum, magnitude, error; /* magnitude: sum of sizes */
    int64_t terms;
    int unknown;
} dycl_number_sum;
static inline void dycl_number_add(dycl_number_sum *s, double term, double error) {
    s->sum += term;
    s->magnitude += term < 0 ? -term : term;
    s->error += error;
    s->terms++;
}
/* x y, both known. */
static inline void dycl_number_add_product(dycl_number_sum *s, dycl_number x, dycl_number y) {
    double ax = x.f < 0 ? -x.f : x.f, ay = y.f < 0 ? -y.f : y.f;
    if (!dycl_number_known(x) || !dycl_number_known(y)) s->unknown = 1;
    dycl_number_add(s, x.f * y.f, ax * y.error + ay * x.error + x.error * y.error);
}
dycl_number dycl_number_total(dycl_dtype dtype, const dycl_number_sum *s,
                              double scale); /* scale: a factor of everything */

struct dycl_loss_node;
/* Of the host's operators those that are losses of elements (ir/losses.h). */
dycl_status dycl_reference_loss(dycl_reference *r, const dycl_node *node, const struct dycl_loss_node *loss);

typedef dycl_status (*dycl_reference_fn)(dycl_reference *r, const dycl_node *node, const uint32_t *operands,
                                         const int64_t *attrs);
#define DYCL_FAMILY(NAME, name, ...)                                                                                   \
    dycl_status dycl_reference_##name(dycl_reference *r, const dycl_node *node, const uint32_t *operands,              \
                                      const int64_t *attrs);
#include "ir/family.def"
#undef DYCL_FAMILY

#endif
