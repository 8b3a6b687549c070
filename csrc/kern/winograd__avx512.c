#define DYCL_SIMD_WIDTH 16
#define SUFFIX          dycl_winograd__avx512
#include "kern/winograd_body.h"
