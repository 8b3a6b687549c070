#include <string.h>

typedef float vec4 __attribute__((vector_size(16)));

static inline vec4 load4(const float *p) {
    vec4 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store4(float *p, vec4 v) { memcpy(p, &v, sizeof v); }

#define VEC          vec4
#define LANES        4
#define VECTORS      2
#define ROWS         6
#define LOAD         load4
#define STORE        store4
#define SET1(x)      ((vec4){(x), (x), (x), (x)})
#define ZERO()       ((vec4){0, 0, 0, 0})
#define FMA(a, b, c) ((a) * (b) + (c))
#define ADD(a, b)    ((a) + (b))
#define MORE_VECTORS(R)
#define SUFFIX dycl_small__scalar
#include "kern/small_body.h"
