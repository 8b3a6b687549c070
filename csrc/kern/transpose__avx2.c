#define DYCL_LEVEL      1
#define DYCL_TRANSPOSE4 dycl_kern_transpose4__avx2
#include "kern/transpose_body.h"
