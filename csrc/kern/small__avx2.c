#include <immintrin.h>

#define VEC     __m256
#define LANES   8
#define VECTORS 2
#define ROWS    6
#define LOAD    _mm256_loadu_ps
#define STORE   _mm256_storeu_ps
#define SET1    _mm256_set1_ps
#define ZERO    _mm256_setzero_ps
#define FMA     _mm256_fmadd_ps
#define ADD     _mm256_add_ps
#define MORE_VECTORS(R)
#define SUFFIX dycl_small__avx2
#include "kern/small_body.h"
