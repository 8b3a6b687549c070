#define DYCL_LEVEL      1
#define DYCL_GEMV_TABLE dycl_gemv__avx2
#include "kern/gemv_body.h"
