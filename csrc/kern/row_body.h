/* Row operators, compiled once per ISA: the including file sets DYCL_LEVEL and DYCL_ROW_TABLE (the table's name).
 *
 * Ownership: pointers are borrowed. Threads: pure functions. */
#include "kern/red.h"
#include "kern/row.h"
#include "kern/rowvec.h"
#include "kern/vmath_double.h"

/* e^(p[i] - m) for the first n lanes, 0 in the others. */
static inline vf exp_minus_f32(const float *p, size_t n, vf m) {
    return n == vf_lanes ? vf_exp_negative(vf_load(p) - m) : vf_exp_negative(vf_load_part(p, n, vf_set(-INFINITY)) - m);
}

static inline vd exp_of_f64(vd x) {
    double e[vd_lanes];
    vd_store(e, x);
    _Pragma("omp simd") for (size_t i = 0; i < vd_lanes; i++) e[i] = f64_exp_of(e[i]);
    return vd_load(e);
}

static inline vd exp_minus_f64(const double *p, size_t n, vd m) {
    return exp_of_f64((n == vd_lanes ? vd_load(p) : vd_load_part(p, n, vd_set(-INFINITY))) - m);
}

#define T                float
#define V                vf
#define N(name)          name##_f32
#define DYCL_COMPENSATED 0
#define EXP_MINUS        exp_minus_f32
#define EXP_OF           vf_exp_negative
#include "kern/row_float_body.h"
#include "kern/row_columns_body.h"
#undef T
#undef V
#undef N
#undef DYCL_COMPENSATED
#undef EXP_MINUS
#undef EXP_OF

#define T                double
#define V                vd
#define N(name)          name##_f64
#define DYCL_COMPENSATED 1
#define EXP_MINUS        exp_minus_f64
#define EXP_OF           exp_of_f64
#include "kern/row_float_body.h"
#include "kern/row_columns_body.h"
#undef T
#undef V
#undef N
#undef DYCL_COMPENSATED
#undef EXP_MINUS
#undef EXP_OF

#define ROWS(s)                                                                                                        \
    {                                                                                                                  \
        [DYCL_ROW_SOFTMAX] = row_softmax_##s, [DYCL_ROW_LOG_SOFTMAX] = row_log_softmax_##s,                            \
        [DYCL_ROW_LAYER_NORM] = row_layer_norm_##s, [DYCL_ROW_RMS_NORM] = row_rms_norm_##s,                            \
        [DYCL_ROW_CUMSUM] = row_cumsum_##s, [DYCL_ROW_LAYER_NORM_BACK] = row_layer_norm_back_##s,                      \
        [DYCL_ROW_RMS_NORM_BACK] = row_rms_norm_back_##s, [DYCL_ROW_SOFTMAX_BACK] = row_softmax_back_##s,              \
        [DYCL_ROW_LOG_SOFTMAX_BACK] = row_log_softmax_back_##s                                                         \
    }
const dycl_row_table DYCL_ROW_TABLE = {
    .f32 = ROWS(f32),
    .f64 = ROWS(f64),
    .columns = {[DYCL_ROW_SOFTMAX] = {columns_softmax_f32, columns_softmax_f64},
                [DYCL_ROW_LOG_SOFTMAX] = {columns_log_softmax_f32, columns_log_softmax_f64},
                [DYCL_ROW_CUMSUM] = {columns_cumsum_f32, columns_cumsum_f64}}};
