#define DYCL_LEVEL       1
#define DYCL_BATCH_TABLE dycl_batch_table__avx2
#include "kern/batch_norm_body.h"
