#define DYCL_LEVEL      2
#define DYCL_GEMV_TABLE dycl_gemv__avx512
#include "kern/gemv_body.h"
