#define DYCL_LEVEL          1
#define DYCL_MAX_POOL_TABLE dycl_max_pool__avx2
#include "kern/max_pool_body.h"
