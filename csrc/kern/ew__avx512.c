#define DYCL_SIMD_WIDTH 16
#define EW_ISA          avx512
#include "kern/ew_body.h"
