/* Body of what goes back through a group norm. Before including: DYCL_LEVEL, DYCL_GROUP_TABLE. */
#include "kern/group_norm_back.h"
#include "kern/red.h"
#include "kern/rowvec.h"

#define T                float
#define V                vf
#define N(name)          name##_f32
#define DYCL_COMPENSATED 0
#include "kern/group_norm_back_float_body.h"
#undef T
#undef V
#undef N
#undef DYCL_COMPENSATED
#define T                double
#define V                vd
#define N(name)          name##_f64
#define DYCL_COMPENSATED 1
#include "kern/group_norm_back_float_body.h"

const dycl_group_table DYCL_GROUP_TABLE = {
    {{rows_f32, deviation_of_f32, sums_f32, planes_f32}, {rows_f64, deviation_of_f64, sums_f64, planes_f64}}};
