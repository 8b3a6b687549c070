#define DYCL_LEVEL       0
#define DYCL_BATCH_TABLE dycl_batch_table__scalar
#include "kern/batch_norm_body.h"
