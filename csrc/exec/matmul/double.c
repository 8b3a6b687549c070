#include "exec/matmul/matmul.h"

#include <limits.h>
#include <string.h>

#include "base/host.h"
#include "base/sigstack.h"

/* Products of doubles, by the BLAS that torch brings: the plain loops take 14 times as long at 64x64x64, and no kernel
 * of ours would be faster than it. Below a few hundred multiplications a call costs more than they do. */
#define LEAST_PRODUCTS 256.0

int dycl_double_suits(const dycl_matmul_args *a) {
    dycl_matmul_sides s = dycl_matmul_sides_of(a);
    return a->dtype == DYCL_F64 && dycl_host_functions.dgemm && a->m <= INT_MAX && a->n <= INT_MAX && a->k <= INT_MAX &&
           s.lda <= INT_MAX && s.ldb <= INT_MAX && a->c_row >= a->n && a->c_row <= INT_MAX &&
           (double)a->m * (double)a->n * (double)a->k >= LEAST_PRODUCTS;
}

/* A matrix and a vector: m or n is 1. */
static void by_vector(const dycl_matmul_args *a, const dycl_matmul_sides *s, const double *left, const double *right,
                      double beta, double *to) {
    const int64_t step_left = a->a_column, step_right = a->b_row, step_to = a->n == 1 ? a->c_row : 1;
    const double one = 1;
    if (a->n == 1 && s->trans_a)
        dycl_host_functions.dgemv("N", &a->m, &a->k, &one, left, &s->lda, right, &step_right, &beta, to, &step_to);
    else if (a->n == 1)
        dycl_host_functions.dgemv("T", &a->k, &a->m, &one, left, &s->lda, right, &step_right, &beta, to, &step_to);
    else if (s->trans_b)
        dycl_host_functions.dgemv("T", &a->k, &a->n, &one, right, &s->ldb, left, &step_left, &beta, to, &step_to);
    else
        dycl_host_functions.dgemv("N", &a->n, &a->k, &one, right, &s->ldb, left, &step_left, &beta, to, &step_to);
}

/* Of Fortran, whose matrices are ours transposed: the right side comes first. */
void dycl_double_run(const dycl_matmul_args *a, const double *left, const double *right, const double *bias,
                     double *to) {
    dycl_matmul_sides s = dycl_matmul_sides_of(a);
    double one = 1, beta = bias ? 1 : 0;
    for (int64_t i = 0; bias && i < a->m; i++) memcpy(to + i * a->c_row, bias, (size_t)a->n * sizeof *to);
    dycl_sigstack_need();
    if (dycl_host_functions.dgemv && a->k > 1 && (a->m == 1 || a->n == 1) && a->a_column > 0 && a->b_row > 0)
        by_vector(a, &s, left, right, beta, to);
    else
        dycl_host_functions.dgemm(s.trans_b ? "T" : "N", s.trans_a ? "T" : "N", &a->n, &a->m, &a->k, &one, right,
                                  &s.ldb, left, &s.lda, &beta, to, &a->c_row);
}
