#define DYCL_SIMD_WIDTH 16
#define DYCL_LOSS_TABLE dycl_loss_table__avx512
#include "kern/loss_body.h"
