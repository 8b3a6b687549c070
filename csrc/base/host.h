/* What the core asks of the program that it runs in: results that only the host's own kernels give. Which of equal
 * elements comes first in a sort that need not be stable, and in a selection of the largest, depends on torch's
 * algorithm and on the processor; so these run torch's kernels.
 *
 * Ownership: everything is borrowed for the call. Threads: any; called without the GIL. */
#ifndef DYCL_BASE_HOST_H
#define DYCL_BASE_HOST_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

typedef struct {
    dycl_dtype dtype;
    int rank;
    const int64_t *sizes, *strides; /* strides NULL: contiguous */
    void *data;
} dycl_host_tensor;

/* An argument of an operator that is called by name. */
typedef enum {
    DYCL_HOST_TENSOR,
    DYCL_HOST_TENSORS,
    DYCL_HOST_INTS,
    DYCL_HOST_INT,
    DYCL_HOST_FLOAT,
    DYCL_HOST_FLOATS,
    DYCL_HOST_BOOL,
    DYCL_HOST_WORD,
    DYCL_HOST_DTYPE
} dycl_host_kind;
typedef struct {
    uint8_t kind, optional;          /* optional: the operator takes None, too, also for each tensor of a list */
    int count;                       /* of tensors or numbers; -1: None */
    const dycl_host_tensor *tensors; /* rank -1: None */
    const int64_t *numbers;          /* doubles by their bits; a dtype: one of ours */
    const char *word;
    int word_length;
} dycl_host_argument;

typedef enum { DYCL_HOST_MAKES, DYCL_HOST_INTO, DYCL_HOST_MAKES_IN } dycl_host_into;

/* As Fortran calls it. Sizes and leading dimensions lie in 64 bits and are below 2^31: a BLAS that counts in 32 reads
 * the lower half. */
typedef void (*dycl_host_sgemm)(const char *trans_a, const char *trans_b, const int64_t *m, const int64_t *n,
                                const int64_t *k, const float *alpha, const float *a, const int64_t *lda,
                                const float *b, const int64_t *ldb, const float *beta, float *c, const int64_t *ldc);
typedef void (*dycl_host_dgemm)(const char *trans_a, const char *trans_b, const int64_t *m, const int64_t *n,
                                const int64_t *k, const double *alpha, const double *a, const int64_t *lda,
                                const double *b, const int64_t *ldb, const double *beta, double *c, const int64_t *ldc);
typedef void (*dycl_host_dgemv)(const char *trans, const int64_t *m, const int64_t *n, const double *alpha,
                                const double *a, const int64_t *lda, const double *x, const int64_t *step_x,
                                const double *beta, double *y, const int64_t *step_y);

/* Results of functions with a name are contiguous; `out` has room for them. A function that the host does not have is
 * NULL. */
typedef struct {
    dycl_status (*argsort)(const dycl_host_tensor *x, int64_t dim, int descending, int stable, int64_t *out);
    dycl_status (*argtopk)(const dycl_host_tensor *x, int64_t dim, int64_t k, int largest, int sorted, int64_t *out);
    /* The results of an operator, copied to where `out` (one a result; rank -1: not wanted) says; `into`: it takes the
     * only one, or what it is made in, as its last argument. BAIL: it raised, or a result looks otherwise. */
    dycl_status (*call)(const char *schema, const char *overload, int results, dycl_host_into into, int argument_count,
                        const dycl_host_argument *arguments, const dycl_host_tensor *out);
    dycl_status (*histc)(const dycl_host_tensor *x, int64_t bins, double low, double high, float *out); /* f32 */
    dycl_host_sgemm sgemm; /* of the host's BLAS */
    dycl_host_dgemm dgemm;
    dycl_host_dgemv dgemv;
} dycl_host;

extern dycl_host dycl_host_functions; /* set once, before anything is recorded */

#endif
