/* Losses of elements and their gradients, against their formulas in libm's double. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "each_isa.h"
#include "kern/loss.h"
#include "random.h"

static int failures;

static void check(int ok, const char *what, int kind) {
    if (!ok && failures++ < 20) printf("FAIL %s of loss %d\n", what, kind);
}

static double get(const dycl_loss_desc *d, const void *from, int64_t i) {
    return d->dtype == DYCL_F32 ? (double)((const float *)from)[i] : ((const double *)from)[i];
}

static void set(const dycl_loss_desc *d, void *to, int64_t i, double x) {
    if (d->dtype == DYCL_F32)
        ((float *)to)[i] = (float)x;
    else
        ((double *)to)[i] = x;
}

static double naive(dycl_loss kind, double at, double scale, double x, double y, double w, double p, double g) {
    const double d = x - y, z = fabs(d), e = exp(-y * x), log_sigmoid = fmin(x, 0) - log1p(exp(-fabs(x)));
    switch (kind) {
    case DYCL_LOSS_SMOOTH_L1: return z < at ? 0.5 * z * z / at : z - 0.5 * at;
    case DYCL_LOSS_HUBER: return z < at ? 0.5 * z * z : at * (z - 0.5 * at);
    case DYCL_LOSS_SOFT_MARGIN: return log1p(e);
    case DYCL_LOSS_BCE: return w * ((y - 1) * fmax(log1p(-x), -100) - y * fmax(log(x), -100));
    case DYCL_LOSS_LOGITS: return w * ((1 - y) * x - log_sigmoid);
    case DYCL_LOSS_LOGITS_POSITIVE: return w * ((1 - y) * x - log_sigmoid * (1 + (p - 1) * y));
    case DYCL_LOSS_SMOOTH_L1_BACK: return scale * g * (z >= at ? (d > 0 ? 1 : -1) : d / at);
    case DYCL_LOSS_HUBER_BACK: return scale * g * (z >= at ? (d > 0 ? at : -at) : d);
    case DYCL_LOSS_SOFT_MARGIN_BACK: return -scale * g * y * e / (1 + e);
    default: return scale * w * g * d / fmax((1 - x) * x, 1e-12);
    }
}

static double number_of(dycl_loss kind, int operand) {
    const double share = (double)(below(999) + 1) / 1000;
    if (operand < 2 && (kind == DYCL_LOSS_BCE || kind == DYCL_LOSS_BCE_BACK)) return share;
    return operand < 2 ? 8 * share - 4 : operand == DYCL_LOSS_GRADIENT ? 2 * share - 1 : share + 0.5;
}

static void check_loss(int round) {
    static const double bends[] = {1, 0.5, 2, 0.3, 1.7, 0};
    const dycl_loss kind = (dycl_loss)below(DYCL_LOSS_COUNT);
    const int back = kind >= DYCL_LOSS_SMOOTH_L1_BACK, large = round % 20 == 0;
    dycl_loss_desc d = {.kind = kind, .dtype = below(2) ? DYCL_F32 : DYCL_F64};
    d.n = 1 + below(large ? 100000 : below(2) ? 5000 : 50);
    d.sums = !back && below(2);
    d.mean = d.sums && below(2);
    d.numbers.at = bends[below(6)];
    if (d.numbers.at == 0 && (kind == DYCL_LOSS_HUBER || kind == DYCL_LOSS_HUBER_BACK)) d.numbers.at = 1;
    d.numbers.scale = back && below(2) ? 1.0 / (double)d.n : 1;
    void *in[DYCL_LOSS_OPERANDS];
    const size_t element = dycl_dtype_size(d.dtype);
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) {
        d.period[k] = k > 0 && below(3) == 0 ? 0 : k > 1 && below(2) ? 1 + below(d.n < 300 ? d.n : 300) : d.n;
        in[k] = k == DYCL_LOSS_WEIGHT && below(3) == 0 ? NULL : dycl_alloc((size_t)(d.period[k] + 1) * element);
        for (int64_t i = 0; in[k] && i <= d.period[k]; i++) set(&d, in[k], i, number_of(kind, k));
    }
    const int bad = kind == DYCL_LOSS_BCE && below(4) == 0;
    if (bad) {
        static const double others[] = {-1e-30, 1.0000002, NAN, INFINITY};
        const int k = (int)below(2);
        set(&d, in[k], d.period[k] ? below(d.period[k]) : 0, others[below(4)]);
    }
    long double sum = 0; /* what is added up plainly must not be the worse of the two */
    double size = 0, eps = d.dtype == DYCL_F32 ? 1e-6 : 1e-14;
    char *to = dycl_alloc((size_t)(d.n + 1) * element), *scratch = dycl_alloc(dycl_kern_loss_scratch(&d) + 1);
    memset(to, 0x77, (size_t)(d.n + 1) * element);
    const int good = dycl_kern_loss(&d, to, (const void *const *)in, scratch);
    check(good == !bad, "which elements are no shares", kind);
    for (int64_t i = 0; good && i < d.n; i++) {
        double x[DYCL_LOSS_OPERANDS];
        for (int k = 0; k < DYCL_LOSS_OPERANDS; k++)
            x[k] = in[k] ? get(&d, in[k], d.period[k] ? i % d.period[k] : 0) : 1;
        const double at = d.dtype == DYCL_F32 ? (double)(float)d.numbers.at : d.numbers.at;
        const double want = naive(kind, at, d.numbers.scale, x[0], x[1], x[2], x[3], x[4]);
        sum += want, size += fabs(want);
        if (!d.sums) /* what cancels is of the size of x */
            check(fabs(get(&d, to, i) - want) <= 4 * eps * (fabs(want) + d.numbers.scale), "elements", kind);
    }
    if (good && d.sums) {
        const double by = d.mean ? (double)d.n : 1;
        check(fabsl(get(&d, to, 0) - sum / by) <= 4 * eps * (size + 1) / by, "a sum", kind);
    }
    unsigned char rest[8];
    memset(rest, 0x77, sizeof rest);
    check(memcmp(to + (size_t)(d.sums ? 1 : d.n) * element, rest, element) == 0, "what lies behind the result", kind);
    for (int k = 0; k < DYCL_LOSS_OPERANDS; k++) dycl_free(in[k]);
    dycl_free(to), dycl_free(scratch);
}

int main(void) { return on_each_isa("loss", check_loss, 2500, &failures); }
