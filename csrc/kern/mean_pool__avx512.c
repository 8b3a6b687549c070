#define DYCL_LEVEL           2
#define DYCL_MEAN_POOL_TABLE dycl_mean_pool__avx512
#include "kern/mean_pool_body.h"
