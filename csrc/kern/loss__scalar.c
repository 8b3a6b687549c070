#define DYCL_SIMD_WIDTH 1
#define DYCL_LOSS_TABLE dycl_loss_table__scalar
#include "kern/loss_body.h"
