/* Products whose operands are read as they lie against sums in f64: every ISA, number of threads, order of strides, and
 * strides of 0 and of windows that overlap. Nothing is written beside C or behind the memory to work in. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "kern/product.h"
#include "random.h"

#define ZONE 64 /* bytes behind the memory to work in */

static int failures, copied, divided, parted;

/* Strides of rows and columns: one way round or the other, with gaps, overlapping, or all the same. */
static int64_t lay_out(int64_t rows, int64_t columns, int64_t *row, int64_t *column) {
    int64_t gap = below(2) ? below(9) : 0;
    int way = below(10);
    *row = way < 4 ? columns + gap : way == 8 ? 1 + below(3) : way == 9 ? 0 : 1;
    *column = way < 4 ? 1 : way == 8 ? 1 + below(3) : rows + gap;
    return (rows - 1) * *row + (columns - 1) * *column + 1;
}

static float *floats(int64_t count) {
    float *x = dycl_alloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)below(2001) / 1000 - 1;
    return x;
}

static void check(dycl_isa isa) {
    dycl_product p = {.kernel = dycl_kern_gemm(isa)};
    p.m = pick(1, below(4) ? 70 : 400);
    p.n = pick(1, below(4) ? 120 : 700);
    p.k = pick(1, below(4) ? 60 : below(4) ? 900 : 5000);
    while (p.m * p.n * p.k > 3000000) p.k = p.k / 2 + 1, p.m = p.m / 2 + 1;
    int64_t a_size = lay_out(p.m, p.k, &p.a_row, &p.a_column), b_size = lay_out(p.k, p.n, &p.b_row, &p.b_column);
    p.c_row = p.n + (below(2) ? below(5) : 0);
    float *a = floats(a_size), *b = floats(b_size), *bias = below(2) ? floats(p.n) : NULL, *c = floats(p.m * p.c_row),
          *before = dycl_alloc((size_t)(p.m * p.c_row) * sizeof *before);
    memcpy(before, c, (size_t)(p.m * p.c_row) * sizeof *before);
    if (below(8) == 0) a[below((int)a_size)] = NAN;
    if (below(8) == 0) b[below((int)b_size)] = INFINITY;
    dycl_product_divide(&p, 1 + below(5));
    size_t bytes = dycl_product_bytes(&p);
    char *work = dycl_aligned_alloc(bytes + ZONE);
    memset(work, 0x5a, bytes + ZONE);
    dycl_product_run(&p, a, b, bias, c, work);
    copied += p.a_column != 1;
    divided += p.across * p.down > 1;
    parted += p.columns < p.n;
    for (size_t i = 0; i < ZONE; i++)
        if (work[bytes + i] != 0x5a && failures++ < 20) printf("FAIL written behind the memory to work in\n");
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.c_row; j++) {
            float got = c[i * p.c_row + j];
            if (j >= p.n) {
                if (memcmp(&got, &before[i * p.c_row + j], sizeof got) && failures++ < 20)
                    printf("FAIL written beside a row\n");
                continue;
            }
            double sum = bias ? bias[j] : 0, size = fabs(sum);
            for (int64_t l = 0; l < p.k; l++) {
                double x = (double)a[i * p.a_row + l * p.a_column] * b[l * p.b_row + j * p.b_column];
                sum += x, size += fabs(x);
            }
            int same = isfinite(sum) ? fabs(got - sum) <= size * 1e-6 + 1e-6 : isnan(sum) ? isnan(got) : got == sum;
            if (!same && failures++ < 20)
                printf("FAIL %s %ldx%ldx%ld {%ld,%ld} {%ld,%ld} %dx%d threads at %ld,%ld: %g, not %g\n",
                       dycl_isa_name(isa), (long)p.m, (long)p.k, (long)p.n, (long)p.a_row, (long)p.a_column,
                       (long)p.b_row, (long)p.b_column, p.across, p.down, (long)i, (long)j, got, sum);
        }
    dycl_free(a), dycl_free(b), dycl_free(bias), dycl_free(c), dycl_free(before);
    dycl_aligned_free(work);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_AVX2; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        copied = divided = parted = 0;
        for (int i = 0; i < 400; i++) check(isa);
        if (copied && divided && parted) continue;
        printf("FAIL: not all of it was drawn: %d copied, %d divided, %d in parts\n", copied, divided, parted);
        failures++;
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
