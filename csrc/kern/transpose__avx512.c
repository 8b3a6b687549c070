#define DYCL_LEVEL      2
#define DYCL_TRANSPOSE4 dycl_kern_transpose4__avx512
#include "kern/transpose_body.h"
