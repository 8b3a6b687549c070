#define DYCL_LEVEL     2
#define DYCL_ROW_TABLE dycl_row_table__avx512
#include "kern/row_body.h"
