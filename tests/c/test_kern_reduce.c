/* Reductions and row operators of every ISA against double or naive references, random shapes and special values. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/kern.h"
#include "random.h"

static int failures;

static double uniform(void) { return (double)(rnd() >> 11) / 9007199254740992.0; }
static double normal(void) { return sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform()); }

static void check(int ok, const char *what, double got, double want) {
    if (!ok && failures++ < 30)
        printf("FAIL %s (%s): got %.9g, want %.9g\n", what, dycl_isa_name(dycl_cpu_isa()), got, want);
}
static int same(double a, double b) { return a == b || (a != a && b != b); }
static int close_to(double a, double b, double tolerance) { return same(a, b) || fabs(a - b) <= tolerance; }

static double get(dycl_dtype dtype, const void *p, int64_t i) {
    switch (dtype) {
    case DYCL_F32: return (double)((const float *)p)[i];
    case DYCL_F64: return ((const double *)p)[i];
    case DYCL_I64: return (double)((const int64_t *)p)[i];
    case DYCL_I32: return ((const int32_t *)p)[i];
    case DYCL_I16: return ((const int16_t *)p)[i];
    case DYCL_I8: return ((const int8_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

static void put(dycl_dtype dtype, void *p, int64_t i, double x) {
    switch (dtype) {
    case DYCL_F32: ((float *)p)[i] = (float)x; break;
    case DYCL_F64: ((double *)p)[i] = x; break;
    case DYCL_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    case DYCL_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case DYCL_I16: ((int16_t *)p)[i] = (int16_t)x; break;
    case DYCL_I8: ((int8_t *)p)[i] = (int8_t)x; break;
    case DYCL_U8: ((uint8_t *)p)[i] = (uint8_t)x; break;
    default: ((uint8_t *)p)[i] = x != 0; break;
    }
}

static double sample(dycl_dtype dtype, int specials) {
    if (dtype == DYCL_BOOL) return (double)below(2);
    if (dtype == DYCL_U8) return (double)below(20);
    if (!dycl_dtype_is_float(dtype)) return (double)(below(41) - 20);
    if (specials && below(specials) == 0) {
        static const double values[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0};
        return values[below(5)];
    }
    return below(4) ? normal() : (double)below(5);
}

/* The reference: over `values`, in long double; *scale gets the sum of magnitudes, which an error bound is relative
 * to. */
static double reference(dycl_red op, const double *values, int64_t n, double *scale) {
    long double sum = 0, product = 1, magnitude = 0;
    int64_t best = 0, all = 1, any = 0;
    int greatest = op == DYCL_RED_AMAX || op == DYCL_RED_ARGMAX;
    for (int64_t i = 0; i < n; i++) {
        long double x = (long double)values[i], term = x;
        if (op == DYCL_RED_SUMSQ) term = x * x;
        if (op == DYCL_RED_SUMABS) term = fabsl(x);
        sum += term, product *= x, magnitude += fabsl(term);
        all &= values[i] != 0, any |= values[i] != 0;
        if (values[best] == values[best] &&
            (values[i] != values[i] || (greatest ? values[i] > values[best] : values[i] < values[best])))
            best = i;
    }
    *scale = (double)magnitude;
    switch (op) {
    case DYCL_RED_PROD: *scale = fabs((double)product) * (double)n; return (double)product;
    case DYCL_RED_AMAX:
    case DYCL_RED_AMIN: *scale = 0; return values[best];
    case DYCL_RED_ALL: *scale = 0; return (double)all;
    case DYCL_RED_ANY: *scale = 0; return (double)any;
    case DYCL_RED_ARGMAX:
    case DYCL_RED_ARGMIN: *scale = 0; return (double)best;
    default: return (double)sum;
    }
}

static int is_variance(dycl_red op) { return op == DYCL_RED_VAR || op == DYCL_RED_STD; }

/* *scale: the variance itself, and what is left of equal values by rounding. */
static double reference_variance(const double *values, int64_t n, double correction, double *scale) {
    long double mean = 0, squares = 0, most = 0;
    for (int64_t i = 0; i < n; i++) mean += (long double)values[i];
    mean /= n;
    for (int64_t i = 0; i < n; i++) {
        long double x = (long double)values[i], from = x - mean;
        squares += from * from, most = x * x > most ? x * x : most;
    }
    double variance = (double)squares / fmax(0, (double)n - correction);
    *scale = variance + 1e-8 * (double)most;
    return variance;
}

/* The root is compared as a square: of almost equal values it magnifies what rounding leaves. */
static double squared_if_root(dycl_red op, double x) { return op == DYCL_RED_STD ? x * x : x; }

/* Squares of such floats overflow, or vanish. */
static double some_magnitude(dycl_red op, dycl_dtype dtype) {
    static const double magnitudes[] = {1e-15, 1e18, 1e-25, 1e25};
    return dtype == DYCL_F32 && is_variance(op) && below(3) == 0 ? magnitudes[below(op == DYCL_RED_STD ? 4 : 2)] : 1;
}

static double unit(dycl_dtype dtype) { return dtype == DYCL_F32 ? 6e-8 : dtype == DYCL_F64 ? 1.2e-16 : 0; }

static int64_t some_length(void) { return below(3) ? 1 + below(80) : 1 + below(below(8) ? 1500 : 20000); }

static void check_reds(dycl_isa isa) {
    for (int round = 0; round < 6000; round++) {
        dycl_red op = (dycl_red)below(DYCL_RED_COUNT);
        dycl_dtype dtype = below(2) ? DYCL_F32 : (dycl_dtype)below(DYCL_BF16);
        dycl_red_fn kernel = dycl_kern_red(isa, op, dtype);
        int is_float = dycl_dtype_is_float(dtype), offset = (int)below(4);
        int64_t n = op == DYCL_RED_PROD ? 1 + below(is_float ? 60 : 12) : some_length();
        if (!kernel) {
            check((!is_float && op >= DYCL_RED_VAR) ||
                      (dtype == DYCL_BOOL && (op == DYCL_RED_ARGMAX || op == DYCL_RED_ARGMIN)),
                  "a kernel is missing", op, dtype);
            continue;
        }
        if (round % 100 == 0 && (op <= DYCL_RED_PROD || op == DYCL_RED_ALL || op == DYCL_RED_ANY || op >= DYCL_RED_VAR))
            n = 0;
        char *block = dycl_aligned_alloc((size_t)(n + 8) * 8), *a = block + (size_t)offset * dycl_dtype_size(dtype);
        double *values = dycl_alloc((size_t)(n + 1) * 8), scale, correction = below(4) ? (double)below(3) : 0.3;
        double out_block[2] = {0, 0}, magnitude = some_magnitude(op, dtype);
        int specials = round % 8 == 0 ? (int)n / 2 + 1 : round % 8 == 1 ? 3 * (int)n + 1 : 0;
        for (int64_t i = 0; i < n; i++) {
            double x = sample(dtype, specials);
            if (op == DYCL_RED_ALL && below(n) && x == 0) x = 1;
            if (op == DYCL_RED_ANY && below(2 * n)) x = 0;
            put(dtype, a, i, x * magnitude), values[i] = get(dtype, a, i);
        }
        kernel(out_block, a, &correction, (size_t)n);
        double got = squared_if_root(op, get(dycl_red_result(op, dtype), out_block, 0));
        double want =
            is_variance(op) ? reference_variance(values, n, correction, &scale) : reference(op, values, n, &scale);
        check(close_to(got, want, is_float ? 24 * unit(dtype) * scale : 0), "red", got, want);
        dycl_aligned_free(block), dycl_free(values);
    }
}

/* torch's cascade loses a few units in the last place over a million elements; so may we, no more. */
static void check_sum_accuracy(dycl_isa isa) {
    const int64_t n = 1 << 21;
    float *a = dycl_alloc((size_t)n * 4), got;
    double want = 0;
    for (int64_t i = 0; i < n; i++) a[i] = (float)uniform(), want += (double)a[i];
    dycl_kern_red(isa, DYCL_RED_SUM, DYCL_F32)(&got, a, NULL, (size_t)n);
    check(fabs((double)got - want) <= 1.5e-7 * want, "accuracy of a long sum", (double)got, want);
    dycl_free(a);
}

/* Returns how far a norm carries an error of one unit in the mean: its rounding cannot be avoided. */
static double reference_row(dycl_row op, double *out, const double *a, const double *w, const double *b, int64_t n,
                            double eps) {
    double max = -INFINITY, sum, mean, square;
    long double exact[3] = {0, 0, 0};
    for (int64_t i = 0; i < n; i++) max = a[i] > max || a[i] != a[i] ? a[i] : max, exact[0] += (long double)a[i];
    mean = (double)(exact[0] / n);
    if (op == DYCL_ROW_RMS_NORM) mean = 0;
    for (int64_t i = 0; i < n; i++)
        exact[1] += (long double)exp(a[i] - max), exact[2] += powl((long double)(a[i] - mean), 2);
    sum = (double)exact[1], square = (double)(exact[2] / n);
    for (int64_t i = 0; i < n; i++) {
        if (op == DYCL_ROW_SOFTMAX) out[i] = exp(a[i] - max) / sum;
        if (op == DYCL_ROW_LOG_SOFTMAX) out[i] = a[i] - max - log(sum);
        if (op == DYCL_ROW_CUMSUM) out[i] = (i ? out[i - 1] : 0) + a[i];
        if (op == DYCL_ROW_LAYER_NORM || op == DYCL_ROW_RMS_NORM)
            out[i] = (a[i] - mean) / sqrt(square + eps) * (w ? w[i] : 1) + (b && op == DYCL_ROW_LAYER_NORM ? b[i] : 0);
    }
    return op == DYCL_ROW_LAYER_NORM ? fabs(mean) / sqrt(square + eps) : 0;
}

static int is_softmax_back(dycl_row op) { return op == DYCL_ROW_SOFTMAX_BACK || op == DYCL_ROW_LOG_SOFTMAX_BACK; }
static int is_back(dycl_row op) {
    return op == DYCL_ROW_LAYER_NORM_BACK || op == DYCL_ROW_RMS_NORM_BACK || is_softmax_back(op);
}

/* Returns the size of what its parts are rounded from. */
static double reference_back(dycl_row op, double *out, const double *g, const double *x, int64_t n, double eps) {
    long double mean = 0, square = 0, plain = 0, along = 0;
    double most = 0, reach = 0;
    if (is_softmax_back(op)) {
        int is_log = op == DYCL_ROW_LOG_SOFTMAX_BACK;
        for (int64_t i = 0; i < n; i++) {
            along += (long double)g[i] * (is_log ? 1 : (long double)x[i]);
            most += fabs(g[i]) * (is_log ? 1 : fabs(x[i])), reach = fmax(reach, is_log ? 1 + fabs(g[i]) : fabs(x[i]));
        }
        for (int64_t i = 0; i < n; i++)
            out[i] = (double)(is_log ? (long double)g[i] - expl((long double)x[i]) * along
                                     : ((long double)g[i] - along) * (long double)x[i]);
        for (int64_t i = 0; i < n && !is_log; i++) most = fmax(most, fabs(g[i]));
        return (1 + most) * (1 + reach);
    }
    for (int64_t i = 0; i < n && op == DYCL_ROW_LAYER_NORM_BACK; i++)
        mean += (long double)x[i] / n, plain += (long double)g[i] / n;
    for (int64_t i = 0; i < n; i++) {
        long double d = (long double)x[i] - mean;
        square += d * d / n, along += (long double)g[i] * d / n;
        most = fmax(most, fabs(g[i])), reach = fmax(reach, fabs(x[i]));
    }
    long double scale = 1 / sqrtl(square + (long double)eps);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)(((long double)g[i] - plain - ((long double)x[i] - mean) * along * scale * scale) * scale);
    reach = 1 + reach * (double)scale;
    return most * (double)scale * reach * reach;
}

static void check_rows(dycl_isa isa) {
    for (int round = 0; round < 3000; round++) {
        dycl_row op = (dycl_row)below(DYCL_ROW_COUNT);
        dycl_dtype dtype = below(4) ? DYCL_F32 : DYCL_F64;
        int64_t n = some_length();
        size_t bytes = (size_t)n * 8;
        void *in[3], *out = dycl_alloc(bytes);
        double *values[3], *want = dycl_alloc(bytes), eps = 1e-5, stretch = below(3) ? 1 : 30;
        int use_w = (int)below(2), use_b = (int)below(2), in_place = (int)below(2), minus_inf = below(6) == 0;
        for (int k = 0; k < 3; k++) {
            in[k] = dycl_alloc(bytes), values[k] = dycl_alloc(bytes);
            for (int64_t i = 0; i < n; i++) {
                double x = normal() * stretch;
                if (k == 1 && is_softmax_back(op)) x = op == DYCL_ROW_LOG_SOFTMAX_BACK ? -fabs(x) : fabs(x) / 30;
                if (k == 0 && op <= DYCL_ROW_LOG_SOFTMAX && minus_inf && below(3)) x = -INFINITY;
                put(dtype, in[k], i, x), values[k][i] = get(dtype, in[k], i);
            }
        }
        use_w |= is_back(op);
        double carried = is_back(op) ? reference_back(op, want, values[0], values[1], n, eps)
                                     : reference_row(op, want, values[0], use_w ? values[1] : NULL,
                                                     use_b ? values[2] : NULL, n, eps);
        if (in_place) dycl_free(out), out = in[0];
        dycl_kern_row(isa, op, dtype)(out, in[0], use_w ? in[1] : NULL, use_b ? in[2] : NULL, (size_t)n, eps);
        for (int64_t i = 0; i < n; i++) {
            double got = get(dtype, out, i), size = fabs(want[i]), weight = use_w ? fabs(values[1][i]) : 1;
            if (is_back(op)) size = carried, weight = 0;
            if (op == DYCL_ROW_LOG_SOFTMAX) size += fabs(values[0][i]) + 8;
            if (op == DYCL_ROW_LAYER_NORM || op == DYCL_ROW_RMS_NORM) size += stretch * stretch;
            if (op == DYCL_ROW_CUMSUM) size += (double)n * stretch * 1e-8;
            if (op == DYCL_ROW_SOFTMAX)
                size = size * (1 - log(size + 1e-300) / 12) + 1.5e-38; /* x - max is rounded; subnormals */
            check(close_to(got, want[i], unit(dtype) * (12 * size + 2 * carried * weight)), "row", got, want[i]);
        }
        if (!in_place) dycl_free(out);
        for (int k = 0; k < 3; k++) dycl_free(in[k]), dycl_free(values[k]);
        dycl_free(want);
    }
    float row[40], nan_row[40];
    for (int i = 0; i < 40; i++) row[i] = -INFINITY, nan_row[i] = i == 39 ? NAN : 1;
    dycl_kern_row(isa, DYCL_ROW_SOFTMAX, DYCL_F32)(row, row, NULL, NULL, 37, 0);
    dycl_kern_row(isa, DYCL_ROW_SOFTMAX, DYCL_F32)(nan_row, nan_row, NULL, NULL, 40, 0);
    for (int i = 0; i < 37; i++)
        check(isnan(row[i]) && isnan(nan_row[i]), "softmax of -inf only, or with a NaN", (double)row[i], NAN);
    int64_t whole[5] = {1, -2, INT64_MAX, 1, 5};
    dycl_kern_row(isa, DYCL_ROW_CUMSUM, DYCL_I64)(whole, whole, NULL, NULL, 5, 0);
    check(whole[1] == -1 && whole[2] == INT64_MAX - 1 && whole[3] == INT64_MAX && whole[4] == INT64_MIN + 4,
          "cumsum i64", 0, 0);
}

static void check_reduce(int64_t budget) {
    dycl_reduce_desc d = {0};
    int64_t total = 1, kept = 1, reduced = 1, extent = 1, order[DYCL_MAX_RANK];
    d.rank = (int)below(budget > 100000 ? 4 : 7), d.reduce = (uint32_t)below(1 << d.rank);
    d.op = (dycl_red)below(DYCL_RED_COUNT), d.dtype = below(3) ? (dycl_dtype)below(2) : (dycl_dtype)below(DYCL_BF16);
    if (dycl_dtype_is_float(d.dtype)) {
        if (below(5) == 0) d.op = below(2) ? DYCL_RED_VAR : DYCL_RED_STD;
        d.mean = d.op == DYCL_RED_SUM && below(2), d.correction = (double)below(3);
    }
    if (!dycl_kern_red(dycl_cpu_isa(), d.op, d.dtype)) d.op = DYCL_RED_SUM;
    for (int i = 0; i < d.rank; i++) {
        int64_t most = budget / total;
        d.sizes[i] = below(8) == 0 ? 1 : 1 + below(i + 1 < d.rank && most > 60 && below(3) ? 60 : most);
        if (below(60) == 0 && budget < 100000) d.sizes[i] = 0;
        total *= d.sizes[i] ? d.sizes[i] : 1;
        if (d.reduce >> i & 1)
            reduced *= d.sizes[i];
        else
            kept *= d.sizes[i];
        order[i] = i;
    }
    for (int i = d.rank - 1; i > 0 && below(2); i--) {
        int64_t j = below(i + 1), t = order[i];
        order[i] = order[j], order[j] = t;
    }
    for (int i = d.rank - 1; i >= 0; i--) {
        int k = (int)order[i];
        if (below(12) == 0) extent += below(4);
        d.strides[k] = below(15) == 0 ? 0 : extent;
        extent += d.strides[k] && d.sizes[k] > 1 ? (d.sizes[k] - 1) * d.strides[k] : 0;
    }
    char *in = dycl_alloc((size_t)extent * 8), *out = dycl_alloc((size_t)(kept + 1) * 8);
    double *values = dycl_alloc((size_t)(reduced + 1) * 8), scale;
    /* None, few of many results, or several in each: then one meets another, and ordinary ones before and behind. */
    int specials = below(4) ? 0 : (int)(below(2) ? 4 * reduced + 4 : reduced / 2 + 2);
    double magnitude = some_magnitude(d.op, d.dtype), offset = is_variance(d.op) ? 3 : 0;
    for (int64_t i = 0; i < extent; i++) put(d.dtype, in, i, (sample(d.dtype, specials) + offset) * magnitude);
    size_t bytes = dycl_kern_reduce_scratch(&d);
    char *scratch = dycl_aligned_alloc(bytes + 64);
    memset(scratch + bytes, 0x77, 64);
    dycl_status status = dycl_kern_reduce(&d, out, in, scratch);
    for (int i = 0; i < 64; i++) check(scratch[bytes + (size_t)i] == 0x77, "reduce wrote past its scratch", 0, 0);
    int extreme =
        (d.op >= DYCL_RED_AMAX && d.op <= DYCL_RED_AMIN) || d.op == DYCL_RED_ARGMAX || d.op == DYCL_RED_ARGMIN;
    if (reduced == 0 && kept > 0 && extreme) {
        check(status == DYCL_BAIL, "reduce of nothing bails", status, DYCL_BAIL);
        kept = 0;
    } else {
        check(status == DYCL_OK, "reduce", status, 0);
    }
    dycl_dtype result = dycl_red_result(d.op, d.dtype);
    for (int64_t i = 0; i < kept; i++) {
        if (kept > 500 && below(kept) > 500) continue;
        int64_t rest = i, base = 0;
        for (int k = d.rank - 1; k >= 0; k--)
            if (!(d.reduce >> k & 1)) base += rest % d.sizes[k] * d.strides[k], rest /= d.sizes[k];
        for (int64_t j = 0; j < reduced; j++) {
            int64_t at = base, left = j;
            for (int k = d.rank - 1; k >= 0; k--)
                if (d.reduce >> k & 1) at += left % d.sizes[k] * d.strides[k], left /= d.sizes[k];
            values[j] = get(d.dtype, in, at);
        }
        double got = get(result, out, i), want;
        if (is_variance(d.op)) {
            got = squared_if_root(d.op, got);
            want = reference_variance(values, reduced, d.correction, &scale);
        } else {
            want = reference(d.op, values, reduced, &scale);
            if (d.mean) want /= (double)reduced, scale /= (double)reduced;
            if (d.op == DYCL_RED_PROD && fabs(want) > 1e15 && !dycl_dtype_is_float(result))
                continue; /* wraps: no double reference */
            if (d.op == DYCL_RED_PROD && d.dtype == DYCL_F32 && (fabs(want) > 1e30 || fabs(want) < 1e-30)) continue;
        }
        check(close_to(got, want, dycl_dtype_is_float(result) ? 24 * unit(d.dtype) * scale : 0),
              is_variance(d.op) ? "variance" : "reduce", got, want);
    }
    dycl_free(in), dycl_free(out), dycl_free(values), dycl_aligned_free(scratch);
}

static void check_group_norm(void) {
    for (int round = 0; round < 60; round++) {
        int64_t n = 1 + below(3), groups = 1 + below(4), c = groups * (1 + below(5)),
                inner = round % 5 == 0 ? 1 : 1 + below(400);
        if (round % 20 == 7) inner = 30000;
        int64_t total = n * c * inner, size = c / groups * inner;
        float *in = dycl_alloc((size_t)total * 4), *out = dycl_alloc((size_t)total * 4), w[20], b[20];
        int use_w = (int)below(2), use_b = (int)below(2);
        for (int64_t i = 0; i < total; i++) in[i] = (float)(normal() + 2);
        for (int i = 0; i < 20; i++) w[i] = (float)normal(), b[i] = (float)normal();
        dycl_kern_group_norm(out, in, use_w ? w : NULL, use_b ? b : NULL, n, c, inner, groups, 1e-5);
        for (int64_t g = 0; g < n * groups; g++) {
            double mean = 0, square = 0;
            for (int64_t i = 0; i < size; i++) mean += (double)in[g * size + i] / (double)size;
            for (int64_t i = 0; i < size; i++) square += pow((double)in[g * size + i] - mean, 2) / (double)size;
            for (int64_t i = 0; i < size; i++) {
                int64_t channel = g % groups * (c / groups) + i / inner;
                double want =
                    ((double)in[g * size + i] - mean) / sqrt(square + 1e-5) * (use_w ? (double)w[channel] : 1);
                want += use_b ? (double)b[channel] : 0;
                double got = (double)out[g * size + i],
                       tolerance = size > 1 ? 2e-6 * (8 + fabs(want)) : 1e-4 * (8 + fabs(want));
                check(close_to(got, want, square < 1e-3 ? 1e-3 : tolerance), "group_norm", got, want);
            }
        }
        dycl_free(in), dycl_free(out);
    }
}

static void check_finite(void) {
    float data[133] = {0};
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN}, good[] = {0, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45f, 1};
    for (size_t n = 0; n <= 133; n++) {
        for (size_t i = 0; i < n; i++) data[i] = good[(i * 7 + n) % 7];
        if (!dycl_kern_all_finite(data, n)) failures++, printf("FAIL finite numbers taken for others, n %zu\n", n);
        for (size_t at = 0; at < n; at++) {
            float before = data[at];
            data[at] = bad[(at + n) % 4];
            if (dycl_kern_all_finite(data, n)) failures++, printf("FAIL n %zu: element %zu not seen\n", n, at);
            data[at] = before;
        }
        for (size_t i = 0; i < n; i++) data[i] = i % 2 ? -0x1.fffffep29f : 0x1.fffffep29f; /* just below 2^30 */
        if (!dycl_kern_all_below(data, n, 30)) failures++, printf("FAIL small numbers taken for others, n %zu\n", n);
        for (size_t at = 0; at < n; at++) {
            float before = data[at];
            data[at] = at % 3 ? (at % 3 == 1 ? -0x1p30f : 0x1p30f) : NAN;
            if (dycl_kern_all_below(data, n, 30)) failures++, printf("FAIL n %zu: large element %zu not seen\n", n, at);
            data[at] = before;
        }
    }
    printf("finite: ok\n");
}

int main(void) {
    for (int isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        int before = failures;
        if (!dycl_cpu_isa_force((dycl_isa)isa)) continue;
        check_reds((dycl_isa)isa), check_sum_accuracy((dycl_isa)isa);
        printf("%s row reductions: %s\n", dycl_isa_name((dycl_isa)isa), failures == before ? "ok" : "FAILED"),
            before = failures;
        check_rows((dycl_isa)isa);
        printf("%s row operators: %s\n", dycl_isa_name((dycl_isa)isa), failures == before ? "ok" : "FAILED"),
            before = failures;
        for (int i = 0; i < 4000; i++) check_reduce(i % 100 ? 5000 : 600000);
        printf("%s strided reductions: %s\n", dycl_isa_name((dycl_isa)isa), failures == before ? "ok" : "FAILED"),
            before = failures;
        check_group_norm();
        printf("%s group norm, pooling: %s\n", dycl_isa_name((dycl_isa)isa), failures == before ? "ok" : "FAILED");
    }
    check_finite();
    return failures != 0;
}
