#define DYCL_LEVEL     2
#define DYCL_RED_TABLE dycl_red_table__avx512
#include "kern/red_body.h"
