/* What the core asks of the program that it runs in: results that only the host's own kernels give. Which of equal elements comes first in a sort
 * that need not be stable, and in a selection of the largest, depends on torch's algorithm and on the processor; so these run torch's kernels.
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
    const int64_t *sizes;
    void *data; /* contiguous; only read */
} dycl_host_tensor;

/* Results are contiguous; `out` has room for them. A function that the host does not have is NULL. */
typedef struct {
    dycl_status (*argsort)(const dycl_host_tensor *x, int64_t dim, int descending, int stable, int64_t *out);
    dycl_status (*argtopk)(const dycl_host_tensor *x, int64_t dim, int64_t k, int largest, int sorted, int64_t *out);
    dycl_status (*histc)(const dycl_host_tensor *x, int64_t bins, double low, double high, float *out); /* f32 */
} dycl_host;

extern dycl_host dycl_host_functions; /* set once, before anything is recorded */

#endif
