/* Formulas of operators that the host's own kernel computes (ir/hosted.def): mostly its own kernels go back, too. What
 * torch differentiates is the function of that name, so these formulas are those of functions.
 *
 * Attributes of a node: how the result looks, then its arguments but tensors. */
#ifndef DYCL_GRAD_HOSTED_H
#define DYCL_GRAD_HOSTED_H

#include <string.h>

#include "grad/formula.h"
#include "ir/infer.h"

typedef struct {
    int64_t words[DYCL_MAX_ATTRS];
    int count;
} dycl_words;

static inline void dycl_words_push(dycl_words *w, int64_t word) { w->words[w->count++] = word; }

static inline void dycl_words_push_list(dycl_words *w, int count, const int64_t *numbers) {
    dycl_words_push(w, count);
    for (int i = 0; i < count; i++) dycl_words_push(w, numbers[i]);
}

/* The arguments of the node. */
static inline const int64_t *dycl_words_given(const dycl_chain *c) { return c->attrs + 3 + 2 * c->attrs[2]; }

static inline dycl_words dycl_words_same(const dycl_chain *c) {
    dycl_words w = {.count = c->node->attr_count - 3 - 2 * (int)c->attrs[2]};
    memcpy(w.words, dycl_words_given(c), (size_t)w.count * sizeof *w.words);
    return w;
}

/* A dimension of operand 0 that is an argument, counted from the front. */
static inline int64_t dycl_words_dim(const dycl_chain *c, int nth) {
    int64_t dim = dycl_words_given(c)[nth];
    return dim < 0 ? dim + dycl_chain_operand(c, 0)->rank : dim;
}

/* A list of numbers, of which one may stand for all; moves on to what comes behind it. */
static inline void dycl_words_read(const int64_t **at, int count, int64_t *out) {
    int64_t length = (*at)[0];
    for (int i = 0; i < count; i++) out[i] = (*at)[length == 1 ? 1 : 1 + i];
    *at += 1 + length;
}

/* A result of torch's backward operator, which lies as dycl_chain_hosted says. */
static inline uint32_t dycl_chain_back(dycl_chain *c, dycl_op op, int which, const dycl_value *like, int count,
                                       const uint32_t *operands, const dycl_words *w) {
    dycl_value made = *like; /* building may move the graph that it lies in */
    return dycl_chain_hosted(c, op, which, &made, count, operands, w->count, w->words);
}

/* The value of the segment that is the other result of the same call. In select.c */
uint32_t dycl_chain_sibling(dycl_chain *c, int which);

/* x's sizes, laid out as torch's suggest_memory_format calls the gradient: many kernels answer so. */
static inline dycl_value dycl_chain_as_gradient(const dycl_chain *c, const dycl_value *x) {
    return dycl_chain_formatted(x, c->status == DYCL_OK ? dycl_chain_meta(c, c->gradient) : x);
}

/* The same of an operator whose kernel lays volumes out, too, as its operand lies. */
static inline uint32_t dycl_chain_back_as(dycl_chain *c, dycl_op op, const dycl_value *like, int count,
                                          const uint32_t *operands, const dycl_words *w) {
    dycl_value made = *like;
    if (dycl_value_channels_last(like))
        dycl_infer_channels_last(&made);
    else
        dycl_infer_contiguous(&made);
    return dycl_chain_hosted_laid(c, op, 0, &made, count, operands, w->count, w->words);
}

#endif
