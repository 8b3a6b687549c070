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

/* FLAT: more squares than any block has. */
typedef enum { ANY, DEEP, FLAT } shape;

static dycl_winograd some_convolution(int64_t lanes, shape kind) {
    int64_t pad[4] = {below(3), below(3), below(3), below(3)}, side = kind == FLAT ? 34 : 0;
    dycl_winograd w = {.images = pick(1, 3),
                       .height = side + pick(3, 14),
                       .width = side + pick(3, 14),
                       .channels = lanes * pick(1, kind == DEEP   ? 40
                                                   : kind == FLAT ? 2
                                                                  : 4),
                       .above = pad[0],
                       .left = pad[1],
                       .outputs = lanes * pick(1, kind == FLAT ? 2 : 12),
                       .limit = 50};
    w.out_height = w.height + pad[0] + pad[2] - 2;
    w.out_width = w.width + pad[1] + pad[3] - 2;
    return w;
}

/* The image's pixel that element k of the window sees at (y, x), channel c; 0: outside. */
static float seen(const dycl_winograd *w, const float *src, int64_t image, int64_t y, int64_t x, int64_t k, int64_t c) {
    y += k / 3 - w->above, x += k % 3 - w->left;
    if (y < 0 || y >= w->height || x < 0 || x >= w->width) return 0;
    return src[((image * w->height + y) * w->width + x) * w->channels + c];
}

/* Of each operand: wherever an element that is not below the limit lies, the answer tells of it. */
static const float wild[] = {NAN, INFINITY, -INFINITY, 0x1p50f, -0x1.8p60f};

static void check_gradient(dycl_isa isa, shape kind) {
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(isa);
    dycl_winograd w = some_convolution(kernel->lanes, kind);
    int threads = (int)pick(1, 3);
    int64_t in = w.images * w.height * w.width * w.channels, out = w.images * w.out_height * w.out_width * w.outputs,
            count = w.outputs * w.channels * 9;
    float *src = floats(in), *gradient = floats(out), *dst = floats(count),
          *scratch = dycl_aligned_alloc(dycl_winograd_gradient_scratch(&w, kernel, threads));
    if (!dycl_winograd_gradient(&w, kernel, src, gradient, dst, scratch, threads) && failures++ < 20)
        printf("FAIL ordinary elements of a gradient are too large\n");
    for (int64_t i = 0; i < count; i += kind == ANY ? 1 : pick(1, 50)) {
        int64_t k = i % 9, c = i / 9 % w.channels, n = i / 9 / w.channels, pixels = w.out_height * w.out_width;
        double sum = 0, size = 0;
        for (int64_t at = 0; at < w.images * pixels; at++) {
            double term = (double)gradient[at * w.outputs + n] *
                          (double)seen(&w, src, at / pixels, at % pixels / w.out_width, at % w.out_width, k, c);
            sum += term, size += fabs(term);
        }
        /* as below: squares are what is summed up here */
        double allowed = (size + 1) * 3 * 6e-8 * (4 + sqrt(4.0 * (double)(w.images * pixels))) + 1e-6;
        if (!(fabs(sum - dst[i]) <= allowed) && failures++ < 20)
            printf("FAIL %s gradient %lldx%lldx%lld -> %lld: %g instead of %g\n", dycl_isa_name(isa),
                   (long long)w.height, (long long)w.width, (long long)w.channels, (long long)w.outputs, (double)dst[i],
                   sum);
    }
    for (int i = 0; i < 10; i++) {
        float *at = i % 2 ? &src[below(in)] : &gradient[below(out)], was = *at;
        *at = wild[i / 2];
        if (dycl_winograd_gradient(&w, kernel, src, gradient, dst, scratch, threads) && failures++ < 20)
            printf("FAIL %g is taken for small in a gradient\n", (double)wild[i / 2]);
        *at = was;
    }
    dycl_free(src), dycl_free(gradient), dycl_free(dst), dycl_aligned_free(scratch);
}

static void check(dycl_isa isa, shape kind) {
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(isa);
    dycl_winograd w = some_convolution(kernel->lanes, kind);
    /* as a convolution has them, or backwards, of the other dimension first */
    int back = below(2) != 0;
    dycl_gemm_layout form = {.kernel = kernel,
                             .n = w.outputs,
                             .sizes = {1, 1, w.channels},
                             .strides = {0, back ? -1 : 1, back ? 9 * w.outputs : 9},
                             .column = back ? 9 : 9 * w.channels};
    do form.vectors = pick(1, DYCL_GEMM_VECTORS);
    while (!kernel->rows[form.vectors]);
    int64_t in = w.images * w.height * w.width * w.channels, out = w.images * w.out_height * w.out_width * w.outputs;
    float *src = floats(in), *weights = floats(w.outputs * w.channels * 9), *dst = floats(out);
    float *scale = below(2) ? floats(w.outputs) : NULL, *bias = below(2) ? floats(w.outputs) : NULL,
          *residual = below(2) ? floats(out) : NULL;
    float low = below(2) ? 0 : -INFINITY, high = below(2) ? 6 : INFINITY;
    int threads = (int)pick(1, 3);
    float *packed = dycl_aligned_alloc(dycl_winograd_bytes(&form)),
          *scratch = dycl_aligned_alloc(dycl_winograd_scratch(&w, &form, 0, threads)),
          *more = dycl_aligned_alloc(dycl_winograd_scratch(&w, &form, 1, threads)), *same = floats(out);
    dycl_gemm_finish finish = {bias, residual, low, high};
    const float *from = back ? weights + 8 : weights;
    const dycl_winograd_weights before = {.packed = packed}, anew = {NULL, from, scale};
    dycl_winograd_pack(&form, from, scale, packed, threads);
    if (!dycl_winograd_run(&w, &form, src, &before, &finish, dst, scratch, threads) && failures++ < 20)
        printf("FAIL ordinary elements are too large\n");
    int small = dycl_winograd_run(&w, &form, src, &anew, &finish, same, more, threads);
    if ((!small || memcmp(same, dst, (size_t)out * sizeof *dst) != 0) && failures++ < 20)
        printf("FAIL weights that are transformed panel by panel make a difference\n");
    for (int64_t i = 0; i < out; i++) {
        int64_t n = i % w.outputs, x = i / w.outputs % w.out_width, y = i / w.outputs / w.out_width % w.out_height,
                image = i / w.outputs / w.out_width / w.out_height;
        double sum = bias ? bias[n] : 0, size = fabs(sum);
        for (int64_t k = 0; k < 9; k++) {
            for (int64_t c = 0; c < w.channels; c++) {
                float weight = from[n * form.column + c * form.strides[2] + k * form.strides[1]];
                double term =
                    (double)seen(&w, src, image, y, x, k, c) * (double)weight * (double)(scale ? scale[n] : 1);
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
    for (int i = 0; i < 5; i++) {
        int64_t at = below(in);
        float was = src[at];
        src[at] = wild[i];
        if (dycl_winograd_run(&w, &form, src, &before, &finish, dst, scratch, threads) && failures++ < 20)
            printf("FAIL %g is taken for small\n", (double)wild[i]);
        src[at] = was;
    }
    /* and only there: the sum of their squares is not below the limit's */
    for (int64_t i = 0; i < in; i++) src[i] = nextafterf(ldexpf(i % 2 ? 1 : -1, 50), 0);
    if (!dycl_winograd_run(&w, &form, src, &before, &finish, dst, scratch, threads) && failures++ < 20)
        printf("FAIL elements below the limit are too large\n");
    dycl_free(src), dycl_free(weights), dycl_free(dst), dycl_free(scale), dycl_free(bias), dycl_free(residual);
    dycl_free(same), dycl_aligned_free(packed), dycl_aligned_free(scratch), dycl_aligned_free(more);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_AVX2; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        for (int i = 0; i < 150; i++) {
            shape kind = i % 15 == 0 ? DEEP : i % 15 == 7 ? FLAT : ANY;
            check(isa, kind), check_gradient(isa, kind);
        }
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
