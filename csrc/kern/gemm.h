/* Matrix products and convolutions over a packed constant: C[m, n] = A[m, k] B[k, n], in tiles whose sums stay in
 * registers.
 *
 * B is packed into panels of up to `vectors` vectors of columns, each panel row after row of k (dycl_gemm_pack), so
 * that a tile reads it in order. A is never packed: the rows of a tile lie at one distance from one another, and a row
 * is made of segments (one for a product, one for each row of the window for a convolution over channels-last pixels
 * with their padding around them). What follows is done before the sums leave the registers: bias, a residual of C's
 * shape, and a clamp to [low, high] that keeps NaN. Sums: one accumulator an element for up to DYCL_GEMM_DEPTH
 * products, such partial sums are added in order.
 *
 * Ownership: none, everything is borrowed for the call. Threads: tiles are pure; the drivers use OpenMP inside. */
#ifndef DYCL_KERN_GEMM_H
#define DYCL_KERN_GEMM_H

#include "kern/isa.h"
#include "kern/kern.h"

static inline int64_t dycl_divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; } /* a >= 0 */

#define DYCL_GEMM_VECTORS 4
#define DYCL_GEMM_ROWS    14
#define DYCL_GEMM_DEPTH   256
#define DYCL_GEMM_NS      0.02 /* for a multiply-add of one thread, to divide work */

typedef struct {
    float *c;
    int64_t c_row; /* elements */
    const char *a;
    int64_t a_row;                /* bytes */
    const int64_t *segments;      /* bytes from a row's begin */
    int64_t segment_count, depth; /* elements of each segment */
    const float *b;
    int64_t columns;   /* more than those of one vector less than the panel has */
    int accumulate;    /* the sums begin with what C holds */
    int finish;        /* the sums are complete: bias, residual and clamp */
    const float *bias; /* added last, or NULL: every partial sum would be rounded as coarsely as a large bias */
    const float *residual;
    int64_t residual_row;
    float low, high;
    const char *next; /* read soon: a part of it is prefetched for each pair of k */
    int64_t next_step;
} dycl_gemm_tile;

typedef void (*dycl_gemm_tile_fn)(const dycl_gemm_tile *tile);
typedef struct {
    dycl_isa isa;
    int lanes;
    int rows[DYCL_GEMM_VECTORS + 1]; /* most rows of a tile with so many vectors; 0: no such tile */
    dycl_gemm_tile_fn tile[DYCL_GEMM_VECTORS + 1][DYCL_GEMM_ROWS + 1];
} dycl_gemm_kernel;

const dycl_gemm_kernel *dycl_kern_gemm(dycl_isa isa); /* NULL: none for this ISA */

/* How B lies: element (k, n), with k = (i, j, l) in that order, at i * strides[0] + j * strides[1] + l * strides[2] + n
 * * column. */
typedef struct {
    const dycl_gemm_kernel *kernel; /* NULL: not this form */
    int64_t n, sizes[3], strides[3], column;
    int64_t vectors; /* of the widest panel */
} dycl_gemm_layout;

size_t dycl_gemm_bytes(const dycl_gemm_layout *form);
int64_t dycl_gemm_panels(const dycl_gemm_layout *form);
int64_t dycl_gemm_column(const dycl_gemm_layout *form, int64_t panel); /* its first; panel `panels`: the end */
/* scale: a factor for each column, or NULL. */
void dycl_gemm_pack(const dycl_gemm_layout *form, const float *b, const float *scale, float *packed, int threads);
/* The panel width (in vectors) with which rows in runs of `run` take the fewest cycles. */
int dycl_gemm_vectors(const dycl_gemm_kernel *kernel, int64_t run, int64_t n);

/* A that is made first: images with zeros around them (dycl_kern_pad), each thread a part. */
typedef struct {
    const dycl_pad *pad; /* NULL: A is there */
    const float *src;
    const int64_t *src_strides;
    float *to;
} dycl_gemm_source;

typedef struct {
    const float *bias;     /* n, or NULL */
    const float *residual; /* as C, or NULL */
    float low, high;       /* -INFINITY, INFINITY: no clamp */
} dycl_gemm_finish;

/* Rows of A in `runs` runs of `run` rows each; run i begins at offset (i / run_inner) * run_outer_stride + (i %
 * run_inner) * run_stride (bytes). */
typedef struct {
    const char *a;
    int64_t run, runs, a_row, run_inner, run_stride, run_outer_stride;
    int64_t segment_count, segment_stride, depth; /* bytes between segments; elements of one */
    int64_t unique;                /* bytes of A that a row has for itself, to choose blocks that stay in the cache */
    float *c;                      /* runs * run rows, c_row apart, or those of a run, and runs as A's */
    int64_t c_row, c_run, c_outer; /* elements; c_run 0: all rows are c_row apart */
    dycl_gemm_source source;       /* what `a` is made from */
} dycl_gemm_rows;

/* A matrix [rows, depth] whose rows lie a_row elements apart. */
static inline dycl_gemm_rows dycl_gemm_matrix(const float *a, int64_t rows, int64_t depth, int64_t a_row, float *c,
                                              int64_t c_row) {
    return (dycl_gemm_rows){.a = (const char *)a,
                            .run = rows,
                            .runs = 1,
                            .a_row = a_row * (int64_t)sizeof(float),
                            .run_inner = 1,
                            .segment_count = 1,
                            .depth = depth,
                            .unique = depth * (int64_t)sizeof(float),
                            .c = c,
                            .c_row = c_row};
}

void dycl_gemm_run(const dycl_gemm_layout *form, const dycl_gemm_rows *rows, const float *packed,
                   const dycl_gemm_finish *finish, int threads);

/* B that is packed while it is multiplied, a panel at a time, which stays in the second cache: of a large B and few
 * rows of A, packing all of it first is most of the time. */
typedef struct {
    const float *from, *scale; /* as for dycl_gemm_pack */
    char *room;                /* dycl_gemm_fresh_bytes, 64-byte aligned */
} dycl_gemm_columns;
int dycl_gemm_suits_fresh(const dycl_gemm_layout *form, const dycl_gemm_rows *rows, int threads);
size_t dycl_gemm_fresh_bytes(const dycl_gemm_layout *form, int threads);
void dycl_gemm_run_fresh(const dycl_gemm_layout *form, const dycl_gemm_rows *rows, const dycl_gemm_columns *b,
                         const dycl_gemm_finish *finish, int threads);

DYCL_ISA_TABLES(const dycl_gemm_kernel, dycl_gemm)

#endif
