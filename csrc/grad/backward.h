/* Reverse-mode differentiation of a recorded segment: a graph that computes the gradients of some of its values from
 * those of others. What the graph needs of the segment's own values is saved when the segment runs.
 *
 * Formulas are torch's own (tools/autograd/derivatives.yaml, FunctionsManual.cpp), so that zeros, infinities and ties
 * get the gradients that torch gives them.
 *
 * Ownership: a dycl_backward owns its graph and arrays; the segment's graph and numbers are borrowed while it is
 * built. Threads: one at a time. */
#ifndef DYCL_GRAD_BACKWARD_H
#define DYCL_GRAD_BACKWARD_H

#include "record/build.h"

typedef int64_t dycl_strides[DYCL_MAX_RANK]; /* entries past the rank are 0 */

/* In `tracked`, of what torch's pow gave: its gradient is made of the operand, though the operator's own would be of
 * the result, which the program may overwrite. OF_SQUARE: the operand is the square that the same call made.
 * UNSAVED: a part of a function of torch's that saves nothing for it, as it would for the operator alone. */
enum { DYCL_GRAD_BY_OPERAND = 8, DYCL_GRAD_OF_SQUARE = 16, DYCL_GRAD_UNSAVED = 32 };

/* What is to be differentiated. Sources are feeds and nodes of the segment; differentiation stops there. Results are
 * nodes. */
typedef struct {
    const dycl_graph *graph;
    const dycl_scalar *numbers; /* of the graph's scalars */
    const uint8_t *tracked;     /* by value: has a history */
    const uint32_t *results;    /* whose gradients come in */
    const uint32_t *sources;    /* whose gradients are asked for */
    const uint8_t *wanted;      /* by source; NULL: all */
    const dycl_strides *given;  /* by result: how its gradient lies; NULL: as the results do */
    uint32_t result_count, source_count;
} dycl_backward_job;

/* torch computes the gradient in one function that reads what is saved, too: it has a history where that has one, with
 * a second derivative of zero. */
typedef struct {
    uint32_t gradient, saved; /* values of the graph */
    uint32_t nothing;         /* the second derivative there is nothing, instead of zeros: torch's is undefined */
} dycl_tie;

typedef struct dycl_piece dycl_piece;     /* move.c */
typedef struct dycl_share dycl_share;     /* share.c */
typedef struct dycl_awaited dycl_awaited; /* sum.c */
typedef struct dycl_held dycl_held;       /* sum.c */

/* OF_SOURCE: a source that is a view of the root, or a part of one. The source has the history, wherever else what the
 * root was made of leads to (weights that the first and the last layer share). */
enum { DYCL_TAKEN_ITSELF = 1, DYCL_TAKEN_OF_SOURCE = 2 };

typedef struct dycl_backward {
    dycl_recorder recorder; /* feeds: the gradients of the results, then what is saved */
    uint32_t *saved;        /* roots of the segment, as they are fed */
    uint32_t saved_count;
    uint8_t *taken;     /* by root of the segment: DYCL_TAKEN_*, if it, or a part of it, was asked for with its
                           history */
    uint8_t *itself;    /* by root of the segment: torch saves it, or a view of it, not only copies */
    uint32_t *detached; /* parts here of what is saved that have no history, whatever that has */
    uint32_t detached_count;
    dycl_tie *ties; /* for who differentiates the graph */
    uint32_t tie_count, tie_room;
    uint32_t *gradients; /* per source: its gradient's value (of a node, or of a result's gradient, or a view of one);
                            DYCL_NONE: no result depends on it */
    struct {
        uint32_t here, of; /* positions among the scalars */
    } * numbers;           /* scalars of the segment in the graph; all others are constants of formulas */
    uint32_t number_count;
    int open; /* something that is saved has a history through which no gradient came: who differentiates the graph
                 would need more than is saved */
    /* while it is built: */
    const dycl_backward_job *job;
    uint32_t *image;     /* by value of the segment: the same here, or DYCL_NONE */
    uint32_t *gradient;  /* by value of the segment: so far, or DYCL_NONE */
    uint8_t *reaches;    /* by value of the segment: whether a source lies behind it (backward.c) */
    uint32_t *awaited;   /* by value of the segment: 1 + the form of its gradient, of which a part waits; or 0 */
    uint32_t *reader;    /* by root of the segment: the first operator that reads it, or a view of it */
    dycl_piece *pieces;  /* gradients of views, that their roots wait for */
    dycl_share *shares;  /* gradients of what several products share */
    dycl_awaited *forms; /* of gradients that torch has by now */
    dycl_held *held;     /* by value of the graph: who has it */
    uint32_t piece_count, piece_room, share_count, share_room, form_count, form_room, held_room;
} dycl_backward;

void dycl_backward_init(dycl_backward *b);
void dycl_backward_free(dycl_backward *b);
/* OK; BAIL: an operator on the way has no formula, or not for this dtype; ERROR. To be called once. */
dycl_status dycl_backward_build(dycl_backward *b, const dycl_backward_job *job);

void dycl_backward_trim(dycl_backward *b); /* without the graph, but with its scalars */

/* What is known of an operator without a graph: */
int dycl_grad_has(dycl_op op); /* a formula */

/* What is otherwise from one version of torch to another: gradients at points without one, what they have a history of.
 * Written once, at start. */
typedef struct {
    int bounds_share; /* clamp: a tensor that equals a bound shares with it; with a number it has none (since 2.14) */
    int fmax_shares;  /* fmax, fmin: equal operands share (since 2.14) */
    int fmax_as_maximum; /* ... and both have the gradient of a NaN (2.14) */
    int group_norm_ties; /* its gradients of x and weight have the history of all its operands (since 2.14) */
} dycl_grad_rules;
extern dycl_grad_rules dycl_grad_rule;

/* The same for the operands of this node: all their gradients can be made. -1: no memory. */
int dycl_grad_has_for(const dycl_graph *graph, const dycl_scalar *numbers, const uint8_t *tracked,
                      const dycl_node *node);
int dycl_grad_suits_grouped(const dycl_value *x); /* products of groups of these rows have one */
/* Attention of these, of rank 4, has one. */
int dycl_grad_suits_attention(const dycl_value *q, const dycl_value *k, const dycl_value *v);
/* Whether the gradient of an operator with a history that stands before node `end` needs the value, or a view of it. */
int dycl_grad_keeps(const dycl_graph *graph, const dycl_scalar *numbers, const uint8_t *tracked, uint32_t value,
                    uint32_t end);
/* A value that the node's gradient is given to besides its operands, or DYCL_NONE: what a layer keeps of its steps
 * comes of its states. */
uint32_t dycl_grad_leads_beside(const dycl_graph *graph, const dycl_node *node);
/* Whether a result of floating point needs a gradient where an operand does. */
int dycl_grad_has_history(const dycl_node *node);

#endif
