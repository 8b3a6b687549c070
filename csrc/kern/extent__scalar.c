#define DYCL_EXTENT dycl_kern_extent__scalar
#include "kern/extent_body.h"
