#define DYCL_EXTENT dycl_kern_extent__avx512
#include "kern/extent_body.h"
