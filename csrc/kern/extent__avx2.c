#define DYCL_EXTENT dycl_kern_extent__avx2
#include "kern/extent_body.h"
