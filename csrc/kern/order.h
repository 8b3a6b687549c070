/* Sorting, selecting and counting of few elements, where the host's kernels take ten microseconds to begin. Only where
 * the result does not depend on an algorithm: of equal elements (and of NaN) the host says which comes first.
 *
 * Ownership: none. Threads: pure, serial. */
#ifndef DYCL_KERN_ORDER_H
#define DYCL_KERN_ORDER_H

#include <stdint.h>

#include "base/dtype.h"

#define DYCL_ORDER_LENGTH 32  /* elements of a row, at most */
#define DYCL_ORDER_TOTAL  512 /* of all rows */

/* Positions of each row's first k elements in ascending or descending order. 1; 0 where that is left to the host, `out`
 * may be written then. */
int dycl_order_rows(dycl_dtype dtype, const void *x, int64_t rows, int64_t length, int64_t k, int descending,
                    int64_t *out);
/* torch.histc: how many of count elements fall into each of `bins` equal parts of [low, high]; 0 as above. */
int dycl_order_histc(const float *x, int64_t count, int64_t bins, float low, float high, float *out);

#endif
