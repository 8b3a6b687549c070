#define DYCL_SIMD_WIDTH 8
#define EW_ISA          avx2
#include "kern/ew_body.h"
