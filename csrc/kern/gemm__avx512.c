/* 32 registers: 14 x 1 and 14 x 2 (28 sums), 8 x 3, 6 x 4 (24), each with room for a row of B. */
#define DYCL_SIMD_WIDTH 16
#define SIX(v)          T(1, v) T(2, v) T(3, v) T(4, v) T(5, v) T(6, v)
#define FOURTEEN(v)     SIX(v) T(7, v) T(8, v) T(9, v) T(10, v) T(11, v) T(12, v) T(13, v) T(14, v)
#define TILES           FOURTEEN(1) FOURTEEN(2) SIX(3) T(7, 3) T(8, 3) SIX(4)
#define MOST1           14
#define MOST2           14
#define MOST3           8
#define MOST4           6
#define ISA             DYCL_ISA_AVX512
#define SUFFIX          dycl_gemm__avx512

#define ADD_PRODUCT(sum, x, y) ((sum) = v_fma(x, y, sum)) /* half the registers are enough for any form */

#include "kern/gemm_body.h"
