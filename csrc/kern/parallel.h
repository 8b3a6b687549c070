/* How many threads a data-movement or reduction driver should use. Ownership: none. Threads: any. */
#ifndef DYCL_KERN_PARALLEL_H
#define DYCL_KERN_PARALLEL_H

#include <omp.h>
#include <stddef.h>

#include "base/cpu.h"

/* Below this much memory traffic per thread, waking a team (about 1.5 us) costs more than it saves: measured with
 * row sums and copies. */
#define DYCL_BYTES_PER_THREAD 131072

static inline int dycl_kern_threads(size_t bytes) {
    if (bytes < 2 * DYCL_BYTES_PER_THREAD || omp_in_parallel()) return 1;
    size_t useful = bytes / DYCL_BYTES_PER_THREAD, allowed = (size_t)dycl_cpu_threads();
    return (int)(useful < allowed ? useful : allowed);
}

#endif
