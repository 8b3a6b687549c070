/* Products of two operands that may both be others in the next run: C[m, n] = A[m, k] B[k, n] (+ bias), over the tiles
 * of kern/gemm.h. What the tiles read is made in each run, a part at a time that stays in the second cache: panels of
 * B, and rows of A where these do not lie in a row. It costs some 16 multiply-adds an element, which some 50 rows
 * pay for, and is there at once: a BLAS that writes its kernels needs 30 ms and 3.4 MiB for the first product.
 *
 * Ownership: everything is borrowed for the call. Threads: run uses OpenMP inside; any number may run at once, each
 * with memory of its own. */
#ifndef DYCL_KERN_PRODUCT_H
#define DYCL_KERN_PRODUCT_H

#include "kern/gemm.h"

typedef struct {
    const dycl_gemm_kernel *kernel;
    int64_t m, n, k;                                 /* all positive */
    int64_t a_row, a_column, b_row, b_column, c_row; /* elements; those of A and B may be any */
    /* what dycl_product_divide finds */
    int across, down;      /* so many threads share the columns of C, and so many the rows */
    int64_t vectors;       /* of the widest panel */
    int64_t columns, rows; /* of C, in a part, */
    int64_t depth;         /* for which so much of k is multiplied at a time */
} dycl_product;

/* Divides the product, of which all above is known, among so many threads at most. */
void dycl_product_divide(dycl_product *product, int threads);
size_t dycl_product_bytes(const dycl_product *product); /* of memory to work in; a multiple of 64 */
/* bias: n, or NULL. work: 64-byte aligned. */
void dycl_product_run(const dycl_product *product, const float *a, const float *b, const float *bias, float *c,
                      char *work);

#endif
