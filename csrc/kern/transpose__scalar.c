#define DYCL_LEVEL      0
#define DYCL_TRANSPOSE4 dycl_kern_transpose4__scalar
#include "kern/transpose_body.h"
