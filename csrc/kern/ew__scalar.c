#define DYCL_SIMD_WIDTH 1
#define EW_ISA          scalar
#include "kern/ew_body.h"
