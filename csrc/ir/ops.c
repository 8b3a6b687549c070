#include "ir/graph.h"

static const dycl_op_info rows[DYCL_OP_COUNT] = {
#define DYCL_KERN_EW(name, n, classes, result) {#name, DYCL_FAMILY_EW, DYCL_MAP_O2O, n, n, 0},
#include "kern/kern.def"
#undef DYCL_KERN_EW
#define DYCL_OP(name, family, mapping, min, max, attrs) {#name, DYCL_FAMILY_##family, DYCL_MAP_##mapping, min, max, attrs},
#include "ir/ops.def"
#undef DYCL_OP
};

const dycl_op_info *dycl_op_get(dycl_op op) { return &rows[op]; }
