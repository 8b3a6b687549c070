#define DYCL_SIMD_WIDTH 8
#define DYCL_CLIP_TABLE dycl_clip__avx2
#include "kern/clip_body.h"
