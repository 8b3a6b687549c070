/* The least and the largest of 64-bit integers, compiled once per ISA: the including file names the function.
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */
#include "kern/extent.h"

void DYCL_EXTENT(const int64_t *data, size_t n, int64_t *low, int64_t *high) {
    int64_t least = *low, most = *high;
#pragma omp simd reduction(min : least) reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        least = data[i] < least ? data[i] : least;
        most = data[i] > most ? data[i] : most;
    }
    *low = least;
    *high = most;
}
