#define DYCL_LEVEL     1
#define DYCL_ROW_TABLE dycl_row_table__avx2
#include "kern/row_body.h"
