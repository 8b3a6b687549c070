#define DYCL_SIMD_WIDTH   1
#define DYCL_UPDATE_TABLE dycl_update__scalar
#include "kern/update_body.h"
