#include "kern/gemv.h"

const dycl_gemv_table *dycl_kern_gemv(dycl_isa isa) {
    switch (isa) {
#if defined(__x86_64__)
    case DYCL_ISA_AVX512: return &dycl_gemv__avx512;
    case DYCL_ISA_AVX2: return &dycl_gemv__avx2;
#endif
    default: return &dycl_gemv__scalar;
    }
}
