#define DYCL_LEVEL     0
#define DYCL_ROW_TABLE dycl_row_table__scalar
#include "kern/row_body.h"
