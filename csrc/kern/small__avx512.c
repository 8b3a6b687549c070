#include <immintrin.h>

#define VEC     __m512
#define LANES   16
#define VECTORS 4
#define ROWS    6
#define LOAD    _mm512_loadu_ps
#define STORE   _mm512_storeu_ps
#define SET1    _mm512_set1_ps
#define ZERO    _mm512_setzero_ps
#define FMA     _mm512_fmadd_ps
#define ADD     _mm512_add_ps
#define MORE_VECTORS(R)                                                                                                \
    case 3: block(R, 3, c, ldc, a, lda, b, bias, columns, k); return;                                                  \
    case 4:                                                                                                            \
        block(R, 4, c, ldc, a, lda, b, bias, columns, k);                                                              \
        return;
#define SUFFIX dycl_small__avx512
#include "kern/small_body.h"
