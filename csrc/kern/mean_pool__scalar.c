#define DYCL_LEVEL           0
#define DYCL_MEAN_POOL_TABLE dycl_mean_pool__scalar
#include "kern/mean_pool_body.h"
