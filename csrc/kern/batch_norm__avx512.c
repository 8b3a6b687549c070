#define DYCL_LEVEL       2
#define DYCL_BATCH_TABLE dycl_batch_table__avx512
#include "kern/batch_norm_body.h"
