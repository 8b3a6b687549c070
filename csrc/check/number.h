/* Numbers of the reference interpreter: what an element is by definition, and how far a right kernel's may be from it.
 *
 * A kernel rounds elsewhere than the reference, and what follows amplifies that; a comparison or a conversion to
 * integers makes a whole one of it. So each number carries a bound of its error (running error analysis, Higham,
 * Accuracy and Stability of Numerical Algorithms, section 3.3), and functions are taken at the ends of the interval
 * too. An infinite bound says that nothing is known. Bounds are generous: what is looked for are elements that are
 * another one's, missing, or of another dtype.
 *
 * Ownership: none. Threads: pure. */
#ifndef DYCL_CHECK_NUMBER_H
#define DYCL_CHECK_NUMBER_H

#include "ir/graph.h"

#include <math.h>

typedef struct {
    double f;     /* of floats; of a bool that lay in memory as another byte than 0 and 1: that byte */
    int64_t i;    /* of integers and bool */
    double error; /* absolute; of integers and bool: 0, or infinite when it is not known which */
} dycl_number;

dycl_number dycl_number_load(dycl_dtype dtype, const void *memory, int64_t at);
dycl_number dycl_number_f(dycl_dtype dtype, double f, double error); /* rounded to the dtype, whose rounding is added */
dycl_number dycl_number_i(dycl_dtype dtype, int64_t i);              /* wraps */
dycl_number dycl_number_unknown(void);
/* A finite intermediate result that is infinite in the dtype: what follows hangs on the order of operations. */
static inline int dycl_number_leaves(dycl_dtype dtype, double x) {
    return dtype != DYCL_F64 && x > 0.999 * dycl_dtype_most(dtype) && isfinite(x);
}
static inline int dycl_number_known(dycl_number x) { return x.error <= 1.7e308; }
double dycl_number_epsilon(dycl_dtype dtype); /* of one operation, with room for a kernel's own approximation */
/* Whether an element that a plan computed may stand for the number. */
int dycl_number_accepts(dycl_dtype dtype, dycl_number want, const void *memory, int64_t at);

/* An elementwise operator (kern.def) on operands of one dtype (`where`: bool first). */
dycl_number dycl_number_apply(dycl_ew op, dycl_dtype in, int count, const dycl_number *x);
static inline dycl_number dycl_number_f32_1(dycl_ew op, dycl_number x) {
    return dycl_number_apply(op, DYCL_F32, 1, &x);
}
static inline dycl_number dycl_number_f32_2(dycl_ew op, dycl_number x, dycl_number y) {
    dycl_number both[2] = {x, y};
    return dycl_number_apply(op, DYCL_F32, 2, both);
}
/* x y and x - y of floats, eps: the operation's own error. */
static inline dycl_number dycl_number_product(dycl_number x, dycl_number y, double eps) {
    double f = x.f * y.f;
    return (dycl_number){f, 0, fabs(x.f) * y.error + fabs(y.f) * x.error + x.error * y.error + eps * fabs(f)};
}
static inline dycl_number dycl_number_difference(dycl_number x, dycl_number y, double eps) {
    return (dycl_number){x.f - y.f, 0, x.error + y.error + eps * (fabs(x.f) + fabs(y.f))};
}
dycl_number dycl_number_cast(dycl_dtype from, dycl_dtype to, dycl_number x);

#endif
