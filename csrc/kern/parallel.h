/* How many threads a data-movement or reduction driver should use. Ownership: none. Threads: any. */
#ifndef DYCL_KERN_PARALLEL_H
#define DYCL_KERN_PARALLEL_H

#include <omp.h>
#include <stddef.h>

#include "base/cpu.h"

/* Below this much memory traffic per thread, waking a team (about 1.5 us) costs more than it saves: measured with
 * row sums and copies. */
#define DYCL_BYTES_PER_THREAD 131072

/* Of `most` threads, as many as have so much to do each; parts: into how many the work can be cut. */
static inline int dycl_kern_share(int64_t bytes, int64_t each, int64_t parts, int most) {
    int64_t useful = bytes / each < parts ? bytes / each : parts;
    return useful < 2 ? 1 : useful < most ? (int)useful : most;
}

static inline int dycl_kern_threads(size_t bytes) {
    if (bytes < 2 * DYCL_BYTES_PER_THREAD || omp_in_parallel()) return 1;
    size_t useful = bytes / DYCL_BYTES_PER_THREAD, allowed = (size_t)dycl_cpu_threads();
    return (int)(useful < allowed ? useful : allowed);
}

#endif
