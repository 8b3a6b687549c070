#define DYCL_LEVEL       1
#define DYCL_GROUP_TABLE dycl_group_table__avx2
#include "kern/group_norm_back_body.h"
