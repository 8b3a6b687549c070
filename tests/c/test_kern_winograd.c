/* Winograd's products against the convolution's definition in f64: every ISA, random sizes, borders, blocks, threads,
 * and all that is done on the way out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/winograd.h"
#include "random.h"

static int failures;

static float *floats(int64_t count) {
    float *x = dycl_alloc((size_t)(count + 1) * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)below(2001) / 1000 - 1;
    return x;
}

static void check(dycl_isa isa, int large) {
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(isa);
    int64_t lanes = kernel->lanes, pad[4] = {below(3), below(3), below(3), below(3)};
    dycl_winograd w = {pick(1, 3), pick(3, 14),        pick(3, 14), lanes * pick(1, large ? 40 : 4), pad[0], pad[1], 0,
                       0,          lanes * pick(1, 6), 50};
    w.out_height = w.height + pad[0] + pad[2] - 2;
    w.out_width = w.width + pad[1] + pad[3] - 2;
    dycl_gemm_layout form = {
        .kernel = kernel, .n = w.outputs, .sizes = {1, 1, w.channels}, .strides = {0, 0, 9}, .column = 9 * w.channels};
    do form.vectors = pick(1, DYCL_GEMM_VECTORS);
    while (!kernel->rows[form.vectors]);
    int64_t in = w.images * w.height * w.width * w.channels, out = w.images * w.out_height * w.out_width * w.outputs;
    float *src = floats(in), *weights = floats(w.outputs * w.channels * 9), *dst = floats(out);
    float *scale = below(2) ? floats(w.outputs) : NULL, *bias = below(2) ? floats(w.outputs) : NULL,
          *residual = below(2) ? floats(out) : NULL;
    float low = below(2) ? 0 : -INFINITY, high = below(2) ? 6 : INFINITY;
    int threads = (int)pick(1, 3);
    float *packed = dycl_aligned_alloc(dycl_winograd_bytes(&form)),
          *scratch = dycl_aligned_alloc(dycl_winograd_scratch(&w, &form, threads));
    dycl_gemm_finish finish = {bias, residual, low, high};
    dycl_winograd_pack(&form, weights, scale, packed, threads);
    int answer = dycl_winograd_run(&w, &form, src, packed, &finish, dst, scratch, threads);
    if (!answer && failures++ < 20) printf("FAIL ordinary elements are too large\n");
    for (int64_t i = 0; i < out; i++) {
        int64_t n = i % w.outputs, x = i / w.outputs % w.out_width, y = i / w.outputs / w.out_width % w.out_height,
                image = i / w.outputs / w.out_width / w.out_height;
        double sum = bias ? bias[n] : 0, size = fabs(sum);
        for (int64_t k = 0; k < 9; k++) {
            int64_t from_y = y + k / 3 - w.above, from_x = x + k % 3 - w.left;
            if (from_y < 0 || from_y >= w.height || from_x < 0 || from_x >= w.width) continue;
            for (int64_t c = 0; c < w.channels; c++) {
                double term = (double)src[((image * w.height + from_y) * w.width + from_x) * w.channels + c] *
                              (double)weights[(n * w.channels + c) * 9 + k] * (double)(scale ? scale[n] : 1);
                sum += term, size += fabs(term);
            }
        }
        if (residual) sum += residual[i];
        if (sum < low) sum = low;
        if (sum > high) sum = high;
        /* the roundings of the direct sum (test_kern_gemm.c), three times as large for the transforms, and of 16
         * squares instead of 9 pixels */
        double allowed = (size + 1) * 3 * 6e-8 * (4 + sqrt(16.0 * (double)w.channels)) + 1e-6;
        if (!(fabs(sum - dst[i]) <= allowed) && failures++ < 20)
            printf("FAIL %s %lldx%lldx%lld -> %lld: %g instead of %g\n", dycl_isa_name(isa), (long long)w.height,
                   (long long)w.width, (long long)w.channels, (long long)w.outputs, (double)dst[i], sum);
    }
    /* wherever an element that is not below the limit lies, the answer tells of it */
    const float wild[] = {NAN, INFINITY, -INFINITY, ldexpf(1, 50), -ldexpf(1.5f, 60)};
    for (int i = 0; i < 5; i++) {
        int64_t at = below(in);
        float was = src[at];
        src[at] = wild[i];
        if (dycl_winograd_run(&w, &form, src, packed, &finish, dst, scratch, threads) && failures++ < 20)
            printf("FAIL %g is taken for small\n", (double)wild[i]);
        src[at] = was;
    }
    /* and only there: the sum of their squares is not below the limit's */
    for (int64_t i = 0; i < in; i++) src[i] = nextafterf(ldexpf(i % 2 ? 1 : -1, 50), 0);
    if (!dycl_winograd_run(&w, &form, src, packed, &finish, dst, scratch, threads) && failures++ < 20)
        printf("FAIL elements below the limit are too large\n");
    dycl_free(src), dycl_free(weights), dycl_free(dst), dycl_free(scale), dycl_free(bias), dycl_free(residual);
    dycl_aligned_free(packed), dycl_aligned_free(scratch);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_AVX2; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        for (int i = 0; i < 150; i++) check(isa, i % 15 == 0);
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
