/* For the formulas (internal to grad/): one a family of operators, named in grad.def. A formula adds what the result's
 * gradient gives to the operands that reach a source.
 *
 * Values are those of the graph being built. A chain of operators stops at the first that fails: its `status` is
 * looked at in the end. */
#ifndef DYCL_GRAD_FORMULA_H
#define DYCL_GRAD_FORMULA_H

#include "grad/backward.h"

typedef struct {
    dycl_backward *b;
    const dycl_node *node;
    const uint32_t *operands; /* in the segment */
    const int64_t *attrs;
    uint32_t gradient;  /* of the result */
    dycl_status status; /* the first that was not OK */
    uint32_t tied;      /* operands, as bits: see dycl_chain_tie */
    int tied_nothing;   /* dycl_tie's `nothing` */
} dycl_chain;

typedef void (*dycl_formula)(dycl_chain *c);

#define DYCL_GRAD(op, formula) void dycl_grad_##formula(dycl_chain *c);
#include "grad/grad.def"
#undef DYCL_GRAD

/* ---- What is known of the segment */

const dycl_value *dycl_chain_meta(const dycl_chain *c, uint32_t value); /* of this graph */
const dycl_value *dycl_chain_operand(const dycl_chain *c, int nth);     /* of the segment */
int dycl_chain_is_plain(const dycl_value *v);                           /* contiguous, dimensions of size 1 too */
int dycl_chain_same_sizes(const dycl_value *a, const dycl_value *b);
int dycl_chain_wants(const dycl_chain *c, int nth);              /* the operand reaches a source */
uint32_t dycl_chain_take(dycl_chain *c, int nth);                /* an operand's value here: it is saved */
uint32_t dycl_chain_take_as(dycl_chain *c, int nth, int copied); /* the same; copied: torch saves a copy of it */
uint32_t dycl_chain_result(dycl_chain *c);                       /* the same of the node's result */
uint32_t dycl_chain_value(dycl_chain *c, uint32_t value);        /* the same of any value of the segment */
uint32_t dycl_chain_image(dycl_backward *b, uint32_t value, dycl_status *status);
/* 1: the first operand is what `op` made, and nobody else's: the chain of that operator, with this gradient so far. */
int dycl_chain_behind(const dycl_chain *c, dycl_op op, dycl_chain *out);
int dycl_chain_by_operand(const dycl_chain *c);                  /* the result is torch's pow: DYCL_GRAD_BY_OPERAND */
void dycl_chain_give(dycl_chain *c, int nth, uint32_t gradient); /* summed over what was broadcast; NONE: nothing */
void dycl_chain_tie(dycl_chain *c, int nth); /* the operand to all that is given from here on (dycl_tie) */
void dycl_chain_fail(dycl_chain *c);         /* no formula for this case */
int dycl_backward_leads(const dycl_backward *b, uint32_t value);     /* to a source that is wanted */
int dycl_backward_is_source(const dycl_backward *b, uint32_t value); /* one that is wanted */
/* What a view's gradient is a part of: its root, or a view on the way there that is a source. Of a root: itself. */
uint32_t dycl_backward_base(const dycl_backward *b, uint32_t value);
dycl_status dycl_backward_tie(dycl_backward *b, dycl_tie tie);

/* ---- Sums (sum.c), that lie as torch's */

dycl_status dycl_backward_accumulate(dycl_backward *b, uint32_t value, uint32_t gradient);
void dycl_backward_release(dycl_backward *b, uint32_t gradient);    /* it is gone back with, and no longer held */
dycl_status dycl_backward_own(dycl_backward *b, uint32_t gradient); /* a view here, but in torch no view of another */
/* The gradient of a view, or of a root, that torch has added up by now, waits here for others: its form decides how the
 * sum lies. What waited is added, and the sum, when it is complete, laid out. */
dycl_status dycl_backward_await(dycl_backward *b, uint32_t view, uint32_t gradient);
dycl_status dycl_backward_await_form(dycl_backward *b, uint32_t view, dycl_value form, int is_own);
dycl_status dycl_backward_add(dycl_backward *b, uint32_t value, uint32_t gradient);
dycl_status dycl_backward_settle(dycl_backward *b, uint32_t value);

/* ---- Operators. Of a chain that failed they answer 0. */

uint32_t dycl_chain_node(dycl_chain *c, dycl_op op, int count, const uint32_t *operands, int attr_count,
                         const int64_t *attrs);
uint32_t dycl_chain_1(dycl_chain *c, dycl_op op, uint32_t a);
uint32_t dycl_chain_2(dycl_chain *c, dycl_op op, uint32_t a, uint32_t b);
uint32_t dycl_chain_in_place(dycl_chain *c, dycl_op op, uint32_t a, uint32_t b);  /* lies as `a`, a dense one, does */
uint32_t dycl_chain_number(dycl_chain *c, dycl_op op, uint32_t a, double number); /* a op number */
uint32_t dycl_chain_constant(dycl_chain *c, uint32_t like, double number);        /* of its dtype, rank 0 */
uint32_t dycl_chain_integer(dycl_chain *c, uint32_t like, int64_t number);        /* the same, exactly */
uint32_t dycl_chain_cast(dycl_chain *c, uint32_t a, dycl_dtype dtype);
uint32_t dycl_chain_where(dycl_chain *c, uint32_t condition, uint32_t a, uint32_t b);
uint32_t dycl_chain_keep(dycl_chain *c, uint32_t condition, uint32_t a);    /* elsewhere 0 */
uint32_t dycl_chain_drop(dycl_chain *c, uint32_t condition, uint32_t a);    /* there 0 */
uint32_t dycl_chain_cleared(dycl_chain *c, uint32_t condition, uint32_t a); /* the same in place: it lies as `a` */
uint32_t dycl_chain_reduce(dycl_chain *c, dycl_op op, uint32_t a, uint32_t dims); /* reduced dimensions of size 1 */
uint32_t dycl_chain_reshape(dycl_chain *c, uint32_t a, int rank, const int64_t *sizes);
uint32_t dycl_chain_restored(dycl_chain *c, uint32_t a, uint32_t dims); /* of a reduction of operand 0: with all its
                                                                            dimensions again */
uint32_t dycl_chain_expand(dycl_chain *c, uint32_t a, int rank, const int64_t *sizes);
/* What each of x's elements gets of a mean's gradient. Divided when it has x's sizes, as in torch: how it lies decides
 * how what follows lies. */
uint32_t dycl_chain_mean_back(dycl_chain *c, uint32_t a, const dycl_value *x, double count);
uint32_t dycl_chain_transpose(dycl_chain *c, uint32_t a); /* of the last two dimensions */
uint32_t dycl_chain_product(dycl_chain *c, uint32_t a, uint32_t b);
uint32_t dycl_chain_laid_product(dycl_chain *c, uint32_t a, uint32_t b, int turned); /* (b^T a^T)^T where turned */
/* With zeros around it; numbers below zero take away. */
uint32_t dycl_chain_padded(dycl_chain *c, uint32_t a, const int64_t *before, const int64_t *after, int rank);
uint32_t dycl_chain_zeros(dycl_chain *c, const dycl_value *like);
uint32_t dycl_chain_sum_to(dycl_chain *c, uint32_t a, const dycl_value *shape);
uint32_t dycl_chain_positions(dycl_chain *c, int rank, int dim, int64_t size); /* 0, 1, ... along the dimension */
uint32_t dycl_chain_flip(dycl_chain *c, uint32_t a, int dim);
/* These sizes: of images channels last, where torch's suggest_memory_format says so of `like`, else contiguous. */
dycl_value dycl_chain_formatted(const dycl_value *sizes, const dycl_value *like);
/* A result of the host's operator (ir/hosted.def), of the dtype and the sizes of `like`: channels last where that
 * suggests it, as torch's kernels take and give images, else contiguous. words: its attributes behind the form. */
uint32_t dycl_chain_hosted(dycl_chain *c, dycl_op op, int which, const dycl_value *like, int operand_count,
                           const uint32_t *operands, int word_count, const int64_t *words);
/* The same, which lies as the form says. */
uint32_t dycl_chain_hosted_laid(dycl_chain *c, dycl_op op, int which, const dycl_value *form, int operand_count,
                                const uint32_t *operands, int word_count, const int64_t *words);
uint32_t dycl_chain_laid(dycl_chain *c, uint32_t a, const dycl_value *form); /* that dense way, if it is not yet */
uint32_t dycl_chain_iterated(dycl_chain *c, uint32_t a, uint32_t first, uint32_t second); /* as of a kernel of both */
uint32_t dycl_chain_contiguous(dycl_chain *c, uint32_t a); /* dimensions of size 1, too */

/* ---- Products that share an operand (share.c) */

/* left[rows, m], right[rows, n]: the operand's gradient is left^T right (turned: laid out as its transpose), and that
 * of the bias, if there is one, the sum of left's rows; -1: there is none. Waits for the other products of the same
 * operand. */
void dycl_chain_give_product(dycl_chain *c, int weight, int bias, uint32_t left, uint32_t right, int turned);
/* What waits for this root and its views becomes their gradients. */
dycl_status dycl_backward_join_shares(dycl_backward *b, uint32_t root);

/* ---- Views (pieces.c) */

/* The gradient of a view that shows a part of its base waits for those of the other parts. */
dycl_status dycl_backward_piece(dycl_backward *b, uint32_t view, uint32_t gradient);
dycl_status dycl_backward_late_piece(dycl_backward *b, uint32_t view, uint32_t gradient); /* that was awaited */
int dycl_chain_unfolded(dycl_chain *c); /* 1: the view was windows: DYCL_BACK_UNFOLD (windows.c) */
/* What a view shows of a root that does not overlap, summed there (windows.c). */
uint32_t dycl_chain_summed(dycl_chain *c, const dycl_value *root, const dycl_value *view, uint32_t g);
/* What waits for this root becomes a part of its gradient. */
dycl_status dycl_backward_join(dycl_backward *b, uint32_t root);

#endif
