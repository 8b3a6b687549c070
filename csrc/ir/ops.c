#include "ir/graph.h"

#define ROW(title, in_family, in_mapping, min, max, count, ...)                                                        \
    {                                                                                                                  \
        .name = (title), .family = DYCL_FAMILY_##in_family, .mapping = DYCL_MAP_##in_mapping, .min_operands = (min),   \
        .max_operands = (max), .attrs = (count), __VA_ARGS__                                                           \
    }
static const dycl_op_info rows[DYCL_OP_COUNT] = {
#define DYCL_KERN_EW(name, n, classes, result) ROW(#name, EW, O2O, n, n, 0),
#include "kern/kern.def"
#undef DYCL_KERN_EW
#define DYCL_OP(name, ...) ROW(#name, __VA_ARGS__, ),
#include "ir/ops.def"
#undef DYCL_OP
#define DYCL_HOSTED(row, schema, overload, out, results, work, parameters)                                             \
    ROW("aten_" #row, HOSTED, M2M, 1, DYCL_MAX_OPERANDS, -1),
#include "ir/hosted.def"
#undef DYCL_HOSTED
};

const dycl_op_info *dycl_op_get(dycl_op op) { return &rows[op]; }

dycl_red dycl_red_of(dycl_op op) {
    switch (op) {
    case DYCL_OP_prod: return DYCL_RED_PROD;
    case DYCL_OP_amax: return DYCL_RED_AMAX;
    case DYCL_OP_amin: return DYCL_RED_AMIN;
    case DYCL_OP_all: return DYCL_RED_ALL;
    case DYCL_OP_any: return DYCL_RED_ANY;
    case DYCL_OP_argmax: return DYCL_RED_ARGMAX;
    case DYCL_OP_argmin: return DYCL_RED_ARGMIN;
    case DYCL_OP_sumsq: return DYCL_RED_SUMSQ;
    case DYCL_OP_sumabs: return DYCL_RED_SUMABS;
    case DYCL_OP_var: return DYCL_RED_VAR;
    case DYCL_OP_std: return DYCL_RED_STD;
    default: return DYCL_RED_SUM;
    }
}
