/* 16 registers: 12 x 1, 6 x 2 and 4 x 3 (12 sums), each with room for a row of B. */
#define DYCL_SIMD_WIDTH 8
#define FOUR(v)         T(1, v) T(2, v) T(3, v) T(4, v)
#define SIX(v)          FOUR(v) T(5, v) T(6, v)
#define TILES           SIX(1) T(7, 1) T(8, 1) T(9, 1) T(10, 1) T(11, 1) T(12, 1) SIX(2) FOUR(3)
#define MOST1           12
#define MOST2           6
#define MOST3           4
#define MOST4           0
#define ISA             DYCL_ISA_AVX2
#define SUFFIX          dycl_gemm__avx2

/* Written out: with no register left, compilers take forms that overwrite x or read B from memory for each row, which
 * cost the tiles of 4 x 3 a fifth of their speed. */
#define ADD_PRODUCT(sum, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y))

#include "kern/gemm_body.h"
