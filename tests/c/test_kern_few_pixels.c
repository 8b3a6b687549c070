/* Convolutions of few pixels, and the gradients of their images, against sums in f64: every ISA with tiles, number of
 * threads, size, stride, dilation and border, pixels in any order, with bias, residual and clamp or without. Nothing is
 * written behind the result or behind the memory to work in, and NaN are kept by clamps. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "kern/few_pixels.h"
#include "windows.h"

static int failures, padded, cropped, strided, plain, clamped, many;

typedef struct {
    dycl_few_pixels f;
    const float *x, *weights, *bias, *residual; /* x: back, the gradient */
    int64_t strides[4];
    float low, high;
} example;

static dycl_few_pixels draw(dycl_isa isa) {
    dycl_few_pixels f = {.kernel = dycl_kern_gemm(isa), .outputs = pick(1, 90), .threads = 1 + below(4)};
    dycl_windows *w = &f.windows;
    int64_t size[2], out[2];
    w->images = pick(1, 4);
    w->channels = pick(1, 70);
    for (int i = 0; i < 2; i++) {
        w->window[i] = pick(1, 4);
        w->stride[i] = pick(1, 3);
        w->dilation[i] = below(3) ? 1 : pick(1, 3);
        f.before[i] = below(2) ? 0 : below(4);
        int64_t reach = (w->window[i] - 1) * w->dilation[i] + 1, least = reach - 2 * f.before[i];
        size[i] = (least > 1 ? least : 1) + below(8);
        out[i] = (size[i] + 2 * f.before[i] - reach) / w->stride[i] + 1;
    }
    w->height = size[0], w->width = size[1], w->out_height = out[0], w->out_width = out[1];
    w->pad = (dycl_pad){.images = w->images, .channels = w->channels};
    look(size[0], f.before[0], out[0], w->window[0], w->stride[0], w->dilation[0], &w->pad.height, &w->pad.above,
         &w->pad.below);
    look(size[1], f.before[1], out[1], w->window[1], w->stride[1], w->dilation[1], &w->pad.width, &w->pad.left,
         &w->pad.right);
    padded += w->pad.above || w->pad.left;
    cropped += w->pad.height < w->height;
    strided += w->stride[0] * w->stride[1] > 1;
    many += dycl_windows_pixels(w) > 64;
    return f;
}

/* Line or column of the image that a pixel sees through a place of its window, or -1. */
static int64_t seen(const dycl_few_pixels *f, int axis, int64_t at, int64_t place) {
    int64_t size = axis ? f->windows.width : f->windows.height;
    int64_t i = at * f->windows.stride[axis] + place * f->windows.dilation[axis] - f->before[axis];
    return i >= 0 && i < size ? i : -1;
}

/* All sums, in f64. */
static void add_up(const example *e, int back, double *sums) {
    const dycl_windows *w = &e->f.windows;
    int64_t pixel = 0;
    for (int64_t n = 0; n < w->images; n++)
        for (int64_t y = 0; y < w->out_height; y++)
            for (int64_t z = 0; z < w->out_width; z++, pixel++)
                for (int64_t i = 0; i < w->window[0] * w->window[1]; i++) {
                    int64_t row = seen(&e->f, 0, y, i / w->window[1]), column = seen(&e->f, 1, z, i % w->window[1]);
                    if (row < 0 || column < 0) continue;
                    for (int64_t o = 0; o < e->f.outputs; o++)
                        for (int64_t c = 0; c < w->channels; c++) {
                            double weight = e->weights[(o * w->channels + c) * w->window[0] * w->window[1] + i];
                            int64_t x =
                                n * e->strides[0] + c * e->strides[1] + row * e->strides[2] + column * e->strides[3];
                            if (back)
                                sums[((n * w->height + row) * w->width + column) * w->channels + c] +=
                                    weight * (double)e->x[pixel * e->f.outputs + o];
                            else
                                sums[pixel * e->f.outputs + o] += weight * (double)e->x[x];
                        }
                }
}

static double finished(const example *e, int64_t channels, int64_t i, double sum) {
    if (e->bias) sum += (double)e->bias[i % channels];
    if (e->residual) sum += (double)e->residual[i];
    if (sum < (double)e->low) return (double)e->low;
    return sum > (double)e->high ? (double)e->high : sum;
}

static void compare(const example *e, int back, int64_t numel, int64_t channels, const float *dst) {
    const dycl_windows *w = &e->f.windows;
    double *sums = dycl_aligned_alloc((size_t)numel * sizeof *sums);
    memset(sums, 0, (size_t)numel * sizeof *sums);
    add_up(e, back, sums);
    for (int64_t i = 0; i < numel; i++) {
        double want = finished(e, channels, i, sums[i]), bound = 2e-4; /* elements are at most 1, sums have some 1000 */
        int same = isnan(want) ? isnan(dst[i]) : fabs((double)dst[i] - want) <= bound;
        if (same || failures++ >= 20) continue;
        printf("FAIL %s %s n%d c%d %dx%d oc%d window %dx%d stride %dx%d: [%d] %g, not %g\n",
               dycl_isa_name(e->f.kernel->isa), back ? "back" : "forward", (int)w->images, (int)w->channels,
               (int)w->height, (int)w->width, (int)e->f.outputs, (int)w->window[0], (int)w->window[1],
               (int)w->stride[0], (int)w->stride[1], (int)i, (double)dst[i], want);
    }
    dycl_aligned_free(sums);
}

/* Channels last, plain, or some other order. */
static void choose_strides(const dycl_windows *w, int64_t *strides) {
    int64_t h = w->height, wide = w->width, c = w->channels;
    const int64_t orders[3][4] = {
        {h * wide * c, 1, wide * c, c}, {c * h * wide, h * wide, wide, 1}, {h * wide * c, h, 1, h * c}};
    int order = below(2) ? 0 : 1 + below(2);
    plain += order;
    memcpy(strides, orders[order], sizeof orders[order]);
}

static void check(dycl_isa isa, int back) {
    example e = {.f = draw(isa), .low = -INFINITY, .high = INFINITY};
    const dycl_windows *w = &e.f.windows;
    int64_t image = w->images * w->height * w->width * w->channels, result = dycl_windows_pixels(w) * e.f.outputs,
            numel = back ? image : result, channels = back ? w->channels : e.f.outputs;
    float *x = floats(back ? result : image), *weights = floats(e.f.outputs * dycl_windows_weights(w)),
          *bias = floats(channels), *residual = floats(numel), *dst = floats(numel);
    choose_strides(w, e.strides);
    if (!below(3)) e.low = 0, e.high = below(2) ? 1 : INFINITY, clamped++;
    if (!below(4)) residual[below((int)numel)] = NAN;
    e.x = x, e.weights = weights;
    if (below(2)) e.bias = bias;
    if (below(2)) e.residual = residual;
    size_t bytes = back ? dycl_few_pixels_back_bytes(&e.f) : dycl_few_pixels_bytes(&e.f);
    char *work = dycl_aligned_alloc(bytes + ZONE);
    const dycl_gemm_finish finish = {e.bias, e.residual, e.low, e.high};
    memset(work, 0xff, bytes + ZONE); /* NaN, where something is read that was not written */
    memset(dst, 0xff, (size_t)numel * sizeof *dst + ZONE);
    if (back)
        dycl_few_pixels_back(&e.f, x, weights, &finish, dst, work);
    else
        dycl_few_pixels_run(&e.f, x, e.strides, weights, &finish, dst, work);
    for (size_t i = 0; i < ZONE; i++)
        if (((unsigned char)work[bytes + i] != 0xff || ((unsigned char *)(dst + numel))[i] != 0xff) && failures++ < 20)
            printf("FAIL written behind\n");
    compare(&e, back, numel, channels, dst);
    dycl_aligned_free(x), dycl_aligned_free(weights), dycl_aligned_free(bias), dycl_aligned_free(residual);
    dycl_aligned_free(dst), dycl_aligned_free(work);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_AVX2; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        padded = cropped = strided = plain = clamped = many = 0;
        for (int i = 0; i < 400; i++) check(isa, i & 1);
        if (padded && cropped && strided && plain && clamped && many) continue;
        printf("FAIL: not all of it was drawn: %d padded, %d cropped, %d strided, %d plain, %d clamped, %d of many\n",
               padded, cropped, strided, plain, clamped, many);
        failures++;
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
