#include "kern/scores.h"

const dycl_scores_table *dycl_kern_scores(dycl_isa isa) {
    switch (isa) {
#if defined(__x86_64__)
    case DYCL_ISA_AVX512: return &dycl_scores__avx512;
    case DYCL_ISA_AVX2: return &dycl_scores__avx2;
#endif
    default: return &dycl_scores__scalar;
    }
}
