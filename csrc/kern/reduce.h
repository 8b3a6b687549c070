/* Shared by reduce.c (plan, rows) and reduce_columns.c. Ownership: a plan lives on its caller's stack and borrows
 * everything.
 *
 * Threads: a plan is immutable once made. */
#ifndef DYCL_KERN_REDUCE_H
#define DYCL_KERN_REDUCE_H

#include "kern/red.h"

typedef struct {
    int rank;
    int64_t size[DYCL_MAX_RANK], stride[DYCL_MAX_RANK]; /* elements */
} dycl_space;

/* How the work is cut depends on the shape only, never on the number of threads, so that results are reproducible. */
typedef struct {
    const dycl_reduce_desc *desc;
    const dycl_red_table *table;
    dycl_space kept, reduced;
    int64_t n_kept, n_reduced;
    size_t element, out_element;
    int64_t piece,
        pieces; /* of the reduced index space; pieces > 1: partial results go through scratch, combined in order */
    dycl_column column; /* column path: see reduce_columns.c; DYCL_COLUMN_COUNT where it is not taken */
} dycl_reduce_plan;

#define DYCL_PIECE  32768 /* elements: what one piece reads at least */
#define DYCL_PIECES 64    /* at most, per kept element or tile */

/* The offset of the index'th element of a space; position: NULL or the index per dimension. */
static inline int64_t dycl_space_seek(const dycl_space *s, int64_t index, int64_t *position) {
    int64_t offset = 0;
    for (int i = s->rank - 1; i >= 0; i--) {
        int64_t at = index % s->size[i];
        index /= s->size[i], offset += at * s->stride[i];
        if (position) position[i] = at;
    }
    return offset;
}

/* Moves to the next index of dimensions 0 .. rank - 1; returns the new offset. */
static inline int64_t dycl_space_next(const dycl_space *s, int rank, int64_t offset, int64_t *position) {
    for (int i = rank - 1; i >= 0; i--) {
        offset += s->stride[i];
        if (++position[i] < s->size[i]) break;
        offset -= position[i] * s->stride[i];
        position[i] = 0;
    }
    return offset;
}

void dycl_reduce_columns_plan(dycl_reduce_plan *plan); /* sets column, piece and pieces where the column path fits */
size_t dycl_reduce_columns_scratch(const dycl_reduce_plan *plan);
void dycl_reduce_columns(const dycl_reduce_plan *plan, void *out, const void *in, void *scratch);

static inline int dycl_is_variance(dycl_red op) { return op == DYCL_RED_VAR || op == DYCL_RED_STD; }

#endif
