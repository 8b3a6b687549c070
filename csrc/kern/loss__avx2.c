#define DYCL_SIMD_WIDTH 8
#define DYCL_LOSS_TABLE dycl_loss_table__avx2
#include "kern/loss_body.h"
