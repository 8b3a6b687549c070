#define DYCL_LEVEL       0
#define DYCL_GROUP_TABLE dycl_group_table__scalar
#include "kern/group_norm_back_body.h"
