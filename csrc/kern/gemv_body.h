/* Body of the products with few rows. Before including: DYCL_LEVEL, DYCL_GEMV_TABLE. */
#include "base/half.h"
#include "kern/gemv.h"
#include "kern/rowvec.h"

#define ALWAYS  static inline __attribute__((always_inline))
#define STREAMS 8
/* Places of B at once: sums (in dot) or factors (in axpy) of all rows stay in registers. */
#if DYCL_LEVEL == 2
#define STREAMS_2 8
#define STREAMS_3 8
#define STREAMS_4 6
#else
#define STREAMS_2 4
#define STREAMS_3 2
#define STREAMS_4 2
#endif
#define BLOCK 4096 /* elements of C that stay in L1 while rows of B go by */

/* ---- Floats of 16 bits: widened as they are loaded */

typedef uint16_t vh __attribute__((vector_size(DYCL_VBYTES / 2)));

ALWAYS vh vh_load(const uint16_t *p) {
    vh v;
    memcpy(&v, p, sizeof v);
    return v;
}
ALWAYS vh vh_load_part(const uint16_t *p, size_t n) {
    vh v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}
ALWAYS vf bf16_wide(vh v) { return (vf)(__builtin_convertvector(v, vf_int) << 16); }
ALWAYS vf f16_wide(vh v) {
#if DYCL_LEVEL == 2
    return (vf)_mm512_cvtph_ps((__m256i)v);
#else
    const vf_int x = __builtin_convertvector(v, vf_int), sign = (x & 0x8000) << 16, size = (x & 0x7fff) << 13;
    const vf_int tiny = (vf_int)((vf)(size + 0x38800000) - 6.103515625e-05f);
    const vf_int normal = (vf_int)vf_select(size < 0x00800000, (vf)tiny, (vf)(size + 0x38000000));
    return (vf)(sign | (vf_int)vf_select(size >= 0x0f800000, (vf)(size | 0x7f800000), (vf)normal));
#endif
}

#define ELEMENT             float
#define LOAD(p)             vf_load(p)
#define LOAD_PART(p, count) vf_load_part(p, count, (vf){0})
#define NAMED(function)     function##_f32
#include "kern/gemv_loops.h"

#define ELEMENT             uint16_t
#define LOAD(p)             bf16_wide(vh_load(p))
#define LOAD_PART(p, count) bf16_wide(vh_load_part(p, count))
#define NAMED(function)     function##_bf16
#include "kern/gemv_loops.h"

#define ELEMENT             uint16_t
#define LOAD(p)             f16_wide(vh_load(p))
#define LOAD_PART(p, count) f16_wide(vh_load_part(p, count))
#define NAMED(function)     function##_f16
#include "kern/gemv_loops.h"

const dycl_gemv_table DYCL_GEMV_TABLE = {dot_f32, axpy_f32, {dot_bf16, axpy_bf16}, {dot_f16, axpy_f16}};
