#define DYCL_SIMD_WIDTH 1
#define DYCL_CLIP_TABLE dycl_clip__scalar
#include "kern/clip_body.h"
