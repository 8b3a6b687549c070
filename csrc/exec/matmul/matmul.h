/* Matrix products as steps. Private to csrc/exec. Ownership: arguments live in the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_MATMUL_MATMUL_H
#define DYCL_EXEC_MATMUL_MATMUL_H

#include "exec/builder/builder.h"
#include "exec/builder/weights_choice.h"
#include "kern/product.h"

/* Who makes a product whose B is not packed. */
typedef enum { DYCL_BY_SGEMM, DYCL_BY_TILES, DYCL_BY_BLAS, DYCL_BY_PRIMITIVE } dycl_matmul_by;

typedef struct {
    dycl_dtype dtype;
    int64_t m, n, k, batches;
    int batch_rank;
    int64_t batch[DYCL_MAX_RANK], a_batch[DYCL_MAX_RANK], b_batch[DYCL_MAX_RANK], c_batch[DYCL_MAX_RANK];
    int64_t a_row, a_column, b_row, b_column, c_row; /* elements */
    dycl_ref a, b, c, bias;
    int has_bias, threads, is_blas; /* is_blas: of doubles, by the host's BLAS (double.c) */
    uint8_t by[3];                  /* of floats: the variants (unpacked.c), of which the first is the default */
    dycl_prim *prim, *plain;        /* with B packed, with B as it is; borrowed from the plan, or NULL */
    dycl_packing *packing;          /* of a constant B, or NULL */
    dycl_weights_choice narrow;
    dycl_product own;        /* by tiles of ours, while B is not packed; kernel NULL: never */
    dycl_autotune *unpacked; /* which variant; borrowed from the plan, or NULL */
    dycl_ref scratch, plain_scratch, own_work;
} dycl_matmul_args;

void dycl_matmul_touches(dycl_builder *b, const dycl_matmul_args *a); /* what the step being built reads */
/* One column, the head of a critic or a score, as one row of the transposed product, where the kernels for few rows
 * read that. Before `choose`. */
dycl_status dycl_matmul_turn_column(dycl_builder *b, dycl_matmul_args *a);
/* Chooses a kernel for the mode of the plan and appends the step. */
dycl_status dycl_matmul_choose(dycl_builder *b, dycl_matmul_args *a);

/* Without a packed constant. run: dycl_matmul_args are the step's arguments, or begin them. prepare: memory for it,
 * once the threads of a batch are known. */
dycl_status dycl_matmul_prepare(dycl_builder *b, dycl_matmul_args *a);
dycl_status dycl_matmul_run(const dycl_step *step, dycl_plan *plan);
dycl_status dycl_matmul_run_by(const dycl_matmul_args *a, dycl_plan *plan, dycl_matmul_by by);

void dycl_matmul_put_bias(const dycl_matmul_args *a, const float *bias, float *to); /* in each row, to be added to */

/* Products of doubles by the host's BLAS, where it has them (double.c). */
int dycl_double_suits(const dycl_matmul_args *a);
void dycl_double_run(const dycl_matmul_args *a, const double *left, const double *right, const double *bias,
                     double *to);

/* The transpositions of both sides and their leading dimensions, as a BLAS for rows takes them. */
typedef struct {
    int trans_a, trans_b;
    int64_t lda, ldb;
} dycl_matmul_sides;
dycl_matmul_sides dycl_matmul_sides_of(const dycl_matmul_args *a);

/* Products whose B is not packed (unpacked.c). offer: the last step has variants of it. run: dycl_matmul_args are the
 * step's arguments, or begin them. blas: one of a batch, by the host's. */
int dycl_unpacked_has_variants(const dycl_builder *b, const dycl_matmul_args *a);
dycl_status dycl_unpacked_offer(dycl_builder *b, dycl_matmul_args *a);
dycl_status dycl_unpacked_run(const dycl_step *step, dycl_plan *plan);
void dycl_unpacked_blas(const dycl_matmul_args *a, const float *left, const float *right, const float *bias, float *to);

/* oneDNN's products (prim.c). pack: with a layout of its own for B. BAIL: it has none. */
dycl_status dycl_matmul_try_primitive(dycl_builder *b, const dycl_matmul_args *a, int pack, dycl_prim **prim,
                                      dycl_ref *scratch);
dycl_status dycl_matmul_offer_packed(dycl_builder *b, dycl_matmul_args *a); /* a constant B that may be packed */
dycl_status dycl_matmul_make_packing(dycl_builder *b, dycl_matmul_args *a, const dycl_tensor *w); /* for a->prim */
dycl_status dycl_matmul_execute(const dycl_matmul_args *a, dycl_plan *plan, const dycl_prim *prim, const void *weights,
                                dycl_ref scratch);

/* A constant B in bfloat16, for a model that asked for it (bf16.c). */
int dycl_bf16_suits(const dycl_builder *b, const dycl_matmul_args *a);
dycl_status dycl_make_bf16(dycl_builder *b, dycl_matmul_args *a);
dycl_status dycl_bf16_offer(dycl_builder *b, dycl_matmul_args *a); /* for few rows: threads and packing */
dycl_status dycl_bf16_run(const dycl_step *step,
                          dycl_plan *plan); /* few rows; dycl_matmul_args begin the step's arguments */

/* Few rows and operands of 16 bits (half.c). */
int dycl_half_suits(const dycl_matmul_args *a);
dycl_status dycl_make_half(dycl_builder *b, const dycl_matmul_args *a);      /* a: copied */
dycl_status dycl_make_half_many(dycl_builder *b, const dycl_matmul_args *a); /* any rows; BAIL: there is no kernel */
int dycl_matmul_may_pack(const dycl_builder *b, dycl_ref ref);               /* what lies there, when it is constant */
size_t dycl_matmul_result_bytes(const dycl_matmul_args *a);

/* Whether few rows read B column by column: each of those is contiguous. */
static inline int dycl_gemv_by_columns(const dycl_matmul_args *a) { return a->b_column != 1; }

/* Few rows: B as it lies, or a constant B in fewer bits (gemv.c). */
int dycl_gemv_suits(const dycl_matmul_args *a);
int dycl_gemv_reads(const dycl_matmul_args *a); /* the same for each of a batch, by dycl_gemv_one */
void dycl_gemv_one(const dycl_matmul_args *a, const float *left, const float *right, const float *bias, float *to);
dycl_status dycl_make_gemv(dycl_builder *b, dycl_matmul_args *a);
/* Its parts, for a step that does more. */
dycl_status dycl_gemv_share(dycl_builder *b, dycl_matmul_args *a,
                            dycl_ref *parts); /* threads, and memory for their partial results where they have some */
dycl_status dycl_gemv_offer(dycl_builder *b, dycl_matmul_args *a); /* the last step may read B in fewer bits */
dycl_status dycl_gemv_run(const dycl_step *step, dycl_plan *plan); /* dycl_matmul_args begin the step's arguments */
void dycl_gemv_as_it_lies(const dycl_matmul_args *args, dycl_plan *plan);

dycl_status dycl_matmul_linear(dycl_builder *b, const dycl_node *node,
                               dycl_matmul_args *a); /* what a linear comes down to */
/* An argmax and the product that it looks at (prefilter.c). */
dycl_status dycl_make_prefilter(dycl_builder *b, const dycl_block *block);

#endif
