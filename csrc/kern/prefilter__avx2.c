#define DYCL_LEVEL           1
#define DYCL_PREFILTER_TABLE dycl_prefilter__avx2
#include "kern/prefilter_body.h"
