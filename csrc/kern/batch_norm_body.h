/* Body of batch norm in training. Before including: DYCL_LEVEL, DYCL_BATCH_TABLE. */
#include <string.h>

#include "kern/batch_norm.h"
#include "kern/rowvec.h"

/* So many f32 as f64. */
typedef float half_vf __attribute__((vector_size(DYCL_VBYTES / 2)));
static inline vd float_wide(const float *p) {
    half_vf v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vd);
}
#define double_wide vd_load

#define ROWS 8  /* of pixels at a time */
#define LINE 64 /* bytes of the cache */

#define T          float
#define V          vf
#define NAME(name) float_##name
#include "kern/batch_norm_float_body.h"
#undef T
#undef V
#undef NAME
#define T          double
#define V          vd
#define NAME(name) double_##name
#include "kern/batch_norm_float_body.h"

const dycl_batch_table DYCL_BATCH_TABLE = {{{float_sums, float_pixels, float_back, float_back_pixels},
                                            {double_sums, double_pixels, double_back, double_back_pixels}}};
