#define DYCL_SIMD_WIDTH 16
#define DYCL_CLIP_TABLE dycl_clip__avx512
#include "kern/clip_body.h"
