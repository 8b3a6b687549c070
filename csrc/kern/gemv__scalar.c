#define DYCL_LEVEL      0
#define DYCL_GEMV_TABLE dycl_gemv__scalar
#include "kern/gemv_body.h"
