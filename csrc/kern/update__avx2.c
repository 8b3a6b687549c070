#define DYCL_SIMD_WIDTH   8
#define DYCL_UPDATE_TABLE dycl_update__avx2
#include "kern/update_body.h"
