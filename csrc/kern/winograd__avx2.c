#define DYCL_SIMD_WIDTH 8
#define SUFFIX          dycl_winograd__avx2
#include "kern/winograd_body.h"
