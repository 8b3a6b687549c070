#define DYCL_LEVEL        1
#define DYCL_NARROW_TABLE dycl_narrow__avx2
#include "kern/narrow_body.h"
