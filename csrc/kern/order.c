#include "kern/order.h"

#include <math.h>

#define LENGTH DYCL_ORDER_LENGTH

/* Insertion: stable, so that elements that compare as equal are found beside each other. */
#define ROW(name, type)                                                                                                \
    static int name(const type *x, int64_t length, int64_t k, int descending, int64_t *out) {                          \
        int64_t order[LENGTH];                                                                                         \
        for (int64_t i = 0; i < length; i++) {                                                                         \
            int64_t at = i;                                                                                            \
            if (x[i] != x[i]) return 0;                                                                                \
            for (; at > 0 && (descending ? x[order[at - 1]] < x[i] : x[order[at - 1]] > x[i]); at--)                   \
                order[at] = order[at - 1];                                                                             \
            order[at] = i;                                                                                             \
        }                                                                                                              \
        for (int64_t i = 0; i < k; i++) {                                                                              \
            if (i + 1 < length && x[order[i]] == x[order[i + 1]]) return 0;                                            \
            out[i] = order[i];                                                                                         \
        }                                                                                                              \
        return 1;                                                                                                      \
    }
ROW(row_f32, float)
ROW(row_f64, double)
ROW(row_i64, int64_t)
ROW(row_i32, int32_t)

int dycl_order_rows(dycl_dtype dtype, const void *x, int64_t rows, int64_t length, int64_t k, int descending,
                    int64_t *out) {
    int done = length <= LENGTH && rows * length <= DYCL_ORDER_TOTAL;
    for (int64_t r = 0; r < rows && done; r++, out += k) {
        switch (dtype) {
        case DYCL_F32: done = row_f32((const float *)x + r * length, length, k, descending, out); break;
        case DYCL_F64: done = row_f64((const double *)x + r * length, length, k, descending, out); break;
        case DYCL_I64: done = row_i64((const int64_t *)x + r * length, length, k, descending, out); break;
        case DYCL_I32: done = row_i32((const int32_t *)x + r * length, length, k, descending, out); break;
        default: done = 0;
        }
    }
    return done;
}

int dycl_order_histc(const float *x, int64_t count, int64_t bins, float low, float high, float *out) {
    if (count > DYCL_ORDER_TOTAL || !(low < high) || !isfinite(high - low)) return 0;
    for (int64_t i = 0; i < bins; i++) out[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(x[i] >= low && x[i] <= high)) continue;
        float place = (x[i] - low) * (float)bins / (high - low); /* as torch rounds it */
        if (!(place <= (float)bins)) return 0;
        int64_t bin = (int64_t)place;
        out[bin < bins ? bin : bins - 1]++; /* the last one has both its bounds */
    }
    return 1;
}
