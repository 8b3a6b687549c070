/* A graph on its way to a plan: what is dead, what is written where, and which nodes run together.
 *
 * Ownership: a dycl_program owns its copy of the graph and its arrays. Threads: one at a time.
 * Passes change the graph's `values` (re-rooting what turned out to be an alias) and mark nodes dead; nodes and
 * operands keep their numbers. Blocks are ordered by `position`: a block only reads what blocks of a lower position
 * write, so that any merge which keeps this rule keeps the schedule acyclic, without a search (merge.c). */
#ifndef DYCL_OPT_PROGRAM_H
#define DYCL_OPT_PROGRAM_H

#include "ir/graph.h"

#define DYCL_SPACE_RANK 16

/* An iteration space: no dimension of size 1, outermost first. Two shapes share a space when their dimensions split
 * alike. */
typedef struct {
    int rank;
    int64_t sizes[DYCL_SPACE_RANK];
} dycl_space;

typedef enum { DYCL_BLOCK_SINGLE, DYCL_BLOCK_TILE } dycl_block_kind;

typedef struct {
    dycl_block_kind kind;
    uint32_t first, last, count; /* members in program order, chained by program->next; count 0: merged away */
    double position;             /* place in the schedule; only ever grows */
    dycl_space space;            /* TILE */
    int64_t elements;            /* of the space */
    int64_t row;                 /* TILE: row length that a row-wise operator asks for; 0: free */
    int grows;                   /* TILE: other blocks may join it */
} dycl_block;

/* What is left of a block when its steps are made: its first member, and what the last one's result looks like. */
typedef struct {
    uint32_t first, sizes; /* sizes: where they begin in look_sizes */
    uint8_t dtype, rank;
} dycl_look;

/* bytes: what one block writes for another; outputs do not count. */
typedef struct {
    uint32_t operators, blocks;
    int64_t bytes;
} dycl_program_size;

typedef struct {
    dycl_graph graph;
    uint32_t *outputs;
    int output_count;
    uint8_t *dead;      /* node: its value is not needed */
    uint8_t *is_output; /* value */
    uint32_t *uses;     /* root value: operands of live nodes that read it, through any view */
    uint32_t *block_of; /* node: its block, DYCL_NONE for views and dead nodes */
    uint32_t *follows;  /* node: the convolution or product that does it on the way out, or DYCL_NONE */
    uint32_t *then;     /* node: next of such a chain, or DYCL_NONE */
    uint32_t *next;     /* node: next member of its block */
    dycl_block *blocks;
    uint32_t block_count;
    uint32_t *order; /* the live blocks by position */
    uint32_t order_count;
    dycl_look *looks; /* by block; NULL until settled */
    int64_t *look_sizes;
    dycl_program_size recorded, planned; /* before the first pass, behind the last */
} dycl_program;

dycl_status dycl_program_init(dycl_program *program, const dycl_graph *graph, const uint32_t *outputs,
                              int output_count);
void dycl_program_free(dycl_program *program);
/* When its steps are made: what only passes and builders need goes, nine tenths of it. What stays are its counts,
 * feeds, numbers and outputs, the nodes and what members blocks have (`next`, `block_of`, `looks`). */
dycl_status dycl_program_settle(dycl_program *program);
size_t dycl_program_bytes(const dycl_program *program); /* when it is settled */
dycl_status dycl_program_verify(const dycl_program *program);
/* A tile block that makes a long space and adds it all up: each tile its part, these at the end. */
int dycl_program_adds_parts(const dycl_program *program, uint32_t block);

/* ---- Passes, in the order in which the pipeline runs them. */
dycl_status dycl_opt_dce(dycl_program *program); /* marks dead nodes, counts uses */
dycl_status
dycl_opt_cse(dycl_program *program); /* same operator, same operands: one node; copies that change nothing vanish */
dycl_status dycl_opt_commute(dycl_program *program);    /* operands of commutative operators in one order */
dycl_status dycl_opt_fold(dycl_program *program);       /* constants and conversions that change nothing */
dycl_status dycl_opt_simplify(dycl_program *program);   /* cancellation, strength reduction */
dycl_status dycl_opt_distribute(dycl_program *program); /* a c + b c = (a + b) c, where it is exact */
dycl_status dycl_opt_epilogue(dycl_program *program);   /* what convolutions do on the way out */
dycl_status dycl_opt_prefilter(dycl_program *program);  /* an argmax and the product that it looks at */
dycl_status dycl_opt_single(dycl_program *program);     /* one block a node (COLD) */
dycl_status dycl_opt_fuse(dycl_program *program);       /* tile blocks by mapping types */
dycl_status dycl_opt_combine(dycl_program *program);    /* two neighbours in a block as one instruction */
dycl_status dycl_opt_join(dycl_program *program); /* parts of concatenations where they will lie; behind `order` */
dycl_status dycl_opt_run(dycl_program *program, int tuned, int epilogues);
extern int64_t dycl_opt_large; /* bytes between its operators from which on a COLD plan is fused; tests set it */
const char *dycl_opt_pass_name(int nth); /* of the passes, each name once; NULL: there are no more */

/* Puts the program into the log, where that wants the topic: a text that parses (dycl_graph_parse_laid), what else is
 * to be said as comments. key: dycl_graph_key of what was recorded (show.c). */
void dycl_program_show(const dycl_program *program, uint64_t key, const char *topic, int tuned);

/* Makes `from` an alias of `to`: every view of it too. `from`'s node is marked dead. */
void dycl_program_alias(dycl_program *program, uint32_t from, uint32_t to);
void dycl_program_count_uses(dycl_program *program);
/* Without blocks every operator counts as one. */
dycl_status dycl_program_measure(const dycl_program *program, dycl_program_size *out);
dycl_status dycl_program_order(dycl_program *program);

static inline const dycl_value *dycl_program_value(const dycl_program *p, uint32_t v) { return &p->graph.values[v]; }
/* Node that owns the storage of a value, or DYCL_NONE for feeds and scalars. */
static inline uint32_t dycl_program_producer(const dycl_program *p, uint32_t v) {
    const dycl_value *root = &p->graph.values[p->graph.values[v].root];
    return root->kind == DYCL_VALUE_NODE ? root->source : DYCL_NONE;
}

/* ---- Spaces (space.c) */
void dycl_space_of(dycl_space *out, int rank, const int64_t *sizes);
/* The coarsest common refinement; 0 when the dimensions do not nest. */
int dycl_space_refine(dycl_space *space, const dycl_space *other);
/* Strides of a value, broadcast to `sizes`, along the dimensions of a space. `sizes` covers the space, or (row != 0)
 * its outer part with the row left out. 0 when it does not. */
int dycl_space_access(const dycl_space *space, int64_t row, const dycl_value *value, int rank, const int64_t *sizes,
                      int64_t *out_strides);

/* What a node needs to be part of a tile block. `row` 0: any. */
typedef struct {
    int ok;
    int64_t row; /* elements of a row that a row-wise operator needs whole */
    int rank;    /* shape that the node iterates over, in loop order (the row last) */
    int64_t sizes[DYCL_MAX_RANK];
    int dims[DYCL_MAX_RANK]; /* dims[i]: dimension of the node's input (or output) at place i */
} dycl_tile_need;
void dycl_tile_need_of(const dycl_program *program, uint32_t node, dycl_tile_need *out);

#endif
