/* kern/bf16: rounding bit by bit, and products with few rows against sums in double over the rounded weights. */
#include "kern/bf16.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "random.h"

static int failures;
static void check(int ok, const char *what) {
    if (!ok && failures++ < 10) printf("FAIL %s\n", what);
}

static float number(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void test_rounding(void) {
    static float from[4099];
    static uint16_t to[4099 + 1];
    for (int round = 0; round < 200; round++) {
        int64_t count = pick(1, 4099);
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)rnd();
            if (below(4) == 0)
                bits = (bits & 0xffff0000u) |
                       (below(2) ? 0x8000 : (uint32_t)below(3) + 0x7fff); /* halves and their neighbours */
            if (below(50) == 0) bits |= 0x7f800000;                       /* infinities and NaNs */
            from[i] = number(bits);
        }
        to[count] = 0xabcd;
        dycl_bf16_round(to, from, 1, count, count, 1, 1);
        check(to[count] == 0xabcd, "writes behind its end");
        for (int64_t i = 0; i < count; i++) {
            float x = from[i], y = number((uint32_t)to[i] << 16);
            check(to[i] == dycl_bf16_of(x), "both roundings agree");
            if (isnan(x)) {
                check(isnan(y), "a NaN stays one");
                continue;
            }
            double up = number(((uint32_t)to[i] + 1) << 16),
                   down = number(((uint32_t)to[i] - 1) << 16); /* neighbours in magnitude */
            if (isfinite(y))
                check(fabs((double)x - y) <= fabs((double)x - up) &&
                          (y == 0 || fabs((double)x - y) <= fabs((double)x - down)),
                      "nearest");
            if (isfinite(y) && isfinite(up) && fabs((double)x - y) == fabs((double)x - up))
                check(to[i] % 2 == 0, "ties to even");
        }
    }
}

static void test_products(void) {
    for (int round = 0; round < 400; round++) {
        int64_t m = pick(1, 11), n = pick(1, round % 10 ? 200 : 700), k = pick(1, 300), transposed = below(2),
                lda = k + below(5), ldc = n + below(5);
        dycl_bf16_layout form = {n, k, transposed ? 1 : n + 3, transposed ? k + 2 : 1, below(2)};
        float *a = malloc(sizeof(float) * (size_t)(m * lda)),
              *b = malloc(sizeof(float) * (size_t)((n + 3) * (k + 2) + 9)), *bias = malloc(sizeof(float) * (size_t)n),
              *c = malloc(sizeof(float) * (size_t)(m * ldc));
        for (int64_t i = 0; i < m * lda; i++) a[i] = (float)below(2001) / 1000 - 1;
        for (int64_t i = 0; i < (n + 3) * (k + 2) + 9; i++) b[i] = (float)below(2000001) / 1000000 - 1;
        for (int64_t i = 0; i < n; i++) bias[i] = (float)below(100);
        for (int64_t i = 0; i < m * ldc; i++) c[i] = 12345;
        uint16_t *rounded = malloc(sizeof *rounded * (size_t)((n + 3) * (k + 2) + 9));
        for (int64_t i = 0; i < (n + 3) * (k + 2) + 9; i++) rounded[i] = dycl_bf16_of(b[i]);
        size_t bytes = dycl_bf16_bytes(&form);
        uint16_t *packed = malloc(bytes + 2);
        packed[bytes / 2] = 0xabcd;
        dycl_bf16_pack(&form, form.rounded ? (const void *)rounded : b, packed, 1 + (int)below(3));
        check(packed[bytes / 2] == 0xabcd, "packing writes behind its end");
        int with_bias = (int)below(2);
        dycl_bf16_rows__avx512(c, ldc, a, lda, packed, with_bias ? bias : NULL, m, n, k);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < ldc; j++) {
                if (j >= n) {
                    check(c[i * ldc + j] == 12345, "columns behind the last");
                    continue;
                }
                double sum = with_bias ? (double)bias[j] : 0, size = fabs(sum);
                for (int64_t p = 0; p < k; p++) {
                    double x = (double)a[i * lda + p] *
                               (double)number((uint32_t)dycl_bf16_of(b[p * form.row + j * form.column]) << 16);
                    sum += x, size += fabs(x);
                }
                /* An addition rounds by half a unit of what is summed up so far, and that is at most `size`. */
                check(fabs(sum - (double)c[i * ldc + j]) <= (double)(k + 1) * 0x1p-24 * size + 1e-30, "the sum");
            }
        free(a), free(b), free(bias), free(c), free(packed), free(rounded);
    }
}

int main(void) {
    if (dycl_cpu_isa() != DYCL_ISA_AVX512) {
        printf("no AVX-512 here\n");
        return 0;
    }
    test_rounding();
    test_products();
    printf(failures ? "%d failures\n" : "ok\n", failures);
    return failures != 0;
}
