#define DYCL_SIMD_WIDTH   16
#define DYCL_UPDATE_TABLE dycl_update__avx512
#include "kern/update_body.h"
