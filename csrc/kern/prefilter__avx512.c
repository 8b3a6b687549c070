#define DYCL_LEVEL           2
#define DYCL_PREFILTER_TABLE dycl_prefilter__avx512
#include "kern/prefilter_body.h"
