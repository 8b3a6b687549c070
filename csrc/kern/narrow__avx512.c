#define DYCL_LEVEL        2
#define DYCL_NARROW_TABLE dycl_narrow__avx512
#include "kern/narrow_body.h"
