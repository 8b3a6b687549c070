#define DYCL_LEVEL          2
#define DYCL_MAX_POOL_TABLE dycl_max_pool__avx512
#include "kern/max_pool_body.h"
