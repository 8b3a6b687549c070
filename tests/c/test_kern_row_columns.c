/* Row operators over rows that lie side by side, of every ISA: what the kernels of single rows give. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/kern.h"
#include "random.h"

static int failures;

static double sample(int specials) {
    static const double values[] = {INFINITY, -INFINITY, NAN, -0.0};
    return specials && below(20) == 0 ? values[below(4)] : (double)rnd_float() * 8;
}

static void compare(const dycl_row_columns_desc *d, const void *got, const void *want, int64_t row) {
    const double unit = d->dtype == DYCL_F32 ? 1e-6 : 1e-14;
    for (int64_t i = 0; i < d->n; i++) {
        double a = dycl_float_at(d->dtype, got, i), b = dycl_float_at(d->dtype, want, i);
        if (a == b || (a != a && b != b) || fabs(a - b) <= unit * (1 + fabs(b))) continue;
        if (failures++ < 30)
            printf("FAIL %s op %d dtype %d n %d width %d row %d element %d: got %.9g, want %.9g\n",
                   dycl_isa_name(dycl_cpu_isa()), d->op, d->dtype, (int)d->n, (int)d->width, (int)row, (int)i, a, b);
    }
}

static void check(dycl_isa isa) {
    static const dycl_row ops[] = {DYCL_ROW_SOFTMAX, DYCL_ROW_LOG_SOFTMAX, DYCL_ROW_CUMSUM};
    dycl_row_columns_desc d = {.op = ops[below(3)], .dtype = below(2) ? DYCL_F32 : DYCL_F64};
    d.n = pick(1, below(3) ? 40 : 300), d.width = pick(1, below(3) ? 70 : 700);
    d.threads = 1 + (int)below(2), d.src_step = d.width + below(5), d.dst_step = d.width + below(5);
    d.rank = 1, d.sizes[0] = pick(1, 3);
    const int in_place = (int)below(3) == 0, specials = (int)below(2);
    if (in_place) d.dst_step = d.src_step;
    d.src_strides[0] = d.src_step * d.n + below(4);
    d.dst_strides[0] = in_place ? d.src_strides[0] : d.dst_step * d.n + below(4);
    const int64_t element = (int64_t)dycl_dtype_size(d.dtype), size = d.src_strides[0] * d.sizes[0],
                  out_size = d.dst_strides[0] * d.sizes[0];
    char *src = dycl_alloc((size_t)(size * element)), *dst = dycl_alloc((size_t)(out_size * element));
    char *given = dycl_alloc((size_t)(size * element)), *row = dycl_alloc((size_t)(d.n * element)),
         *made = dycl_alloc((size_t)(d.n * element));
    for (int64_t i = 0; i < size; i++) dycl_float_put(d.dtype, src, i, sample(specials));
    memcpy(given, src, (size_t)(size * element));
    memset(dst, 0x55, (size_t)(out_size * element));
    char *to = in_place ? src : dst, *untouched = in_place ? given : dst;
    double mark = in_place ? 0 : dycl_float_at(d.dtype, dst, 0);
    dycl_kern_row_columns(&d, to, src, NULL);
    for (int64_t k = 0; k < d.sizes[0]; k++)
        for (int64_t j = 0; j < d.width; j++) {
            const char *from = given + (k * d.src_strides[0] + j) * element,
                       *out = to + (k * d.dst_strides[0] + j) * element;
            dycl_kern_gather_run(row, from, d.src_step, (size_t)d.n, (size_t)element);
            dycl_kern_gather_run(made, out, d.dst_step, (size_t)d.n, (size_t)element);
            dycl_kern_row(isa, d.op, d.dtype)(row, row, NULL, NULL, (size_t)d.n, 0);
            compare(&d, made, row, k * d.width + j);
        }
    for (int64_t j = d.width; j < d.dst_step; j++) { /* between the rows' first and second elements */
        double now = dycl_float_at(d.dtype, to, j), before = in_place ? dycl_float_at(d.dtype, untouched, j) : mark;
        if (now != before && now == now && failures++ < 30) printf("FAIL wrote beside its rows\n");
    }
    dycl_free(src), dycl_free(dst), dycl_free(given), dycl_free(row), dycl_free(made);
}

int main(void) {
    for (int isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        int before = failures;
        if (!dycl_cpu_isa_force((dycl_isa)isa)) continue;
        for (int i = 0; i < 1500; i++) check((dycl_isa)isa);
        printf("%s rows side by side: %s\n", dycl_isa_name((dycl_isa)isa), failures == before ? "ok" : "FAILED");
    }
    return failures != 0;
}
