/* Vectors of elements that lie two apart, taken out of rows and put back. Part of bodies that are compiled for each
 * instruction set.
 *
 * Ownership: none. Threads: pure functions. */
#ifndef DYCL_KERN_TURNS_H
#define DYCL_KERN_TURNS_H

#include "kern/rowvec.h"

/* Every other element of two vectors, from the first or the second one on. */
#if DYCL_LEVEL == 2
#define EVERY_OTHER(low, high, k)                                                                                      \
    __builtin_shufflevector(low, high, k, k + 2, k + 4, k + 6, k + 8, k + 10, k + 12, k + 14, k + 16, k + 18, k + 20,  \
                            k + 22, k + 24, k + 26, k + 28, k + 30)
#elif DYCL_LEVEL == 1
#define EVERY_OTHER(low, high, k)                                                                                      \
    __builtin_shufflevector(low, high, k, k + 2, k + 4, k + 6, k + 8, k + 10, k + 12, k + 14)
#else
#define EVERY_OTHER(low, high, k) __builtin_shufflevector(low, high, k, k + 2, k + 4, k + 6)
#endif
static inline vf evens_of(vf low, vf high) { return EVERY_OTHER(low, high, 0); }
static inline vf odds_of(vf low, vf high) { return EVERY_OTHER(low, high, 1); }
#undef EVERY_OTHER

static inline vf evens(const float *a) { return evens_of(vf_load(a), vf_load(a + vf_lanes)); }

/* Two vectors' elements by turns, as many as there is room for. */
static inline void store_by_turns(float *out, int64_t room, vf even, vf odd) {
#if DYCL_LEVEL == 2
    vf low = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    vf high = __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif DYCL_LEVEL == 1
    vf low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
    vf high = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
#else
    vf low = __builtin_shufflevector(even, odd, 0, 4, 1, 5), high = __builtin_shufflevector(even, odd, 2, 6, 3, 7);
#endif
    if (room < vf_lanes) {
        vf_store_part(out, (size_t)room, low);
        return;
    }
    vf_store(out, low);
    if (room >= 2 * vf_lanes)
        vf_store(out + vf_lanes, high);
    else if (room > vf_lanes)
        vf_store_part(out + vf_lanes, (size_t)(room - vf_lanes), high);
}

/* Up to a vector, the rest 0. */
static inline vf load_up_to(const float *at, int64_t count) {
    return count >= vf_lanes ? vf_load(at) : vf_load_part(at, (size_t)count, vf_set(0));
}

static inline void store_up_to(float *at, int64_t count, vf v) {
    if (count >= vf_lanes)
        vf_store(at, v);
    else
        vf_store_part(at, (size_t)count, v);
}

#endif
