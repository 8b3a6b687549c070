#define DYCL_LEVEL     0
#define DYCL_RED_TABLE dycl_red_table__scalar
#include "kern/red_body.h"
