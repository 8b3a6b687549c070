#define DYCL_LEVEL       2
#define DYCL_GROUP_TABLE dycl_group_table__avx512
#include "kern/group_norm_back_body.h"
