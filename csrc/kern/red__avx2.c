#define DYCL_LEVEL     1
#define DYCL_RED_TABLE dycl_red_table__avx2
#include "kern/red_body.h"
