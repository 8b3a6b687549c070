#define DYCL_LEVEL          0
#define DYCL_MAX_POOL_TABLE dycl_max_pool__scalar
#include "kern/max_pool_body.h"
