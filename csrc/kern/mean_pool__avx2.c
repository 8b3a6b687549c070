#define DYCL_LEVEL           1
#define DYCL_MEAN_POOL_TABLE dycl_mean_pool__avx2
#include "kern/mean_pool_body.h"
