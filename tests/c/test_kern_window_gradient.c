/* Gradients of convolutions' weights as products of windows against sums in f64: every ISA with tiles, number of
 * threads, size, stride, dilation and border, images whose last rows no window sees, few and many pixels and channels.
 * Nothing is written beside the weights or behind the memory to work in. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "kern/window_gradient.h"
#include "windows.h"

static int failures, direct, padded, cropped, across, down;

static double wanted(const dycl_windows *w, int64_t outputs, const float *x, const float *gradient,
                     const int64_t *before, int64_t o, int64_t c, int64_t ky, int64_t kx) {
    double sum = 0;
    for (int64_t n = 0; n < w->images; n++)
        for (int64_t y = 0; y < w->out_height; y++)
            for (int64_t z = 0; z < w->out_width; z++) {
                int64_t row = y * w->stride[0] + ky * w->dilation[0] - before[0],
                        column = z * w->stride[1] + kx * w->dilation[1] - before[1];
                if (row < 0 || row >= w->height || column < 0 || column >= w->width) continue;
                sum += (double)x[((n * w->height + row) * w->width + column) * w->channels + c] *
                       gradient[((n * w->out_height + y) * w->out_width + z) * outputs + o];
            }
    return sum;
}

static void check(dycl_isa isa) {
    dycl_window_gradient g = {.kernel = dycl_kern_gemm(isa)};
    dycl_windows w = {.images = pick(1, 4)};
    int many = !below(4), large = !many && !below(8);
    int64_t before[2], size[2], out[2];
    w.channels = large ? pick(60, 90) : pick(1, many ? 70 : 30);
    g.outputs = pick(1, large ? 2 : many ? 90 : 30);
    for (int i = 0; i < 2; i++) {
        w.window[i] = pick(1, large ? 2 : 4);
        w.stride[i] = large ? 1 : pick(1, 3);
        w.dilation[i] = below(3) ? 1 : pick(1, 3);
        before[i] = below(2) ? 0 : below(4);
        int64_t reach = (w.window[i] - 1) * w.dilation[i] + 1;
        size[i] = reach + (large ? pick(40, 50) : pick(0, many ? 8 : 24));
        out[i] = (size[i] + 2 * before[i] - reach) / w.stride[i] + 1;
    }
    w.height = size[0], w.width = size[1], w.out_height = out[0], w.out_width = out[1];
    w.pad = (dycl_pad){.images = w.images, .channels = w.channels};
    look(size[0], before[0], out[0], w.window[0], w.stride[0], w.dilation[0], &w.pad.height, &w.pad.above,
         &w.pad.below);
    look(size[1], before[1], out[1], w.window[1], w.stride[1], w.dilation[1], &w.pad.width, &w.pad.left, &w.pad.right);
    g.windows = w;
    dycl_window_gradient_divide(&g, 1 + below(5));
    int64_t places = w.window[0] * w.window[1], numel = g.outputs * w.channels * places;
    float *x = floats(w.images * w.height * w.width * w.channels),
          *gradient = floats(w.images * w.out_height * w.out_width * g.outputs), *dst = floats(numel);
    size_t bytes = dycl_window_gradient_bytes(&g);
    char *work = dycl_aligned_alloc(bytes + ZONE);
    memset(work, 0x5a, bytes + ZONE);
    memset(dst + numel, 0x5a, ZONE);
    dycl_window_gradient_run(&g, x, gradient, dst, work);
    direct += places == 1;
    padded += w.pad.above || w.pad.left;
    cropped += w.pad.height < w.height;
    across += g.across > 1;
    down += g.down > 1;
    for (size_t i = 0; i < ZONE; i++)
        if ((work[bytes + i] != 0x5a || ((char *)(dst + numel))[i] != 0x5a) && failures++ < 20)
            printf("FAIL written behind\n");
    for (int64_t i = 0; i < numel; i++) {
        int64_t place = i % places, c = i / places % w.channels, o = i / places / w.channels;
        double want = wanted(&w, g.outputs, x, gradient, before, o, c, place / w.window[1], place % w.window[1]),
               bound = 1e-6 * (double)(w.images * w.out_height * w.out_width) + 1e-6; /* elements are at most 1 */
        if (!(fabs(dst[i] - want) <= bound) && failures++ < 20)
            printf("FAIL %s n%d c%d %dx%d oc%d window %dx%d: [%d][%d][%d] %g, not %g\n", dycl_isa_name(isa),
                   (int)w.images, (int)w.channels, (int)w.height, (int)w.width, (int)g.outputs, (int)w.window[0],
                   (int)w.window[1], (int)o, (int)c, (int)place, dst[i], want);
    }
    dycl_aligned_free(x), dycl_aligned_free(gradient), dycl_aligned_free(dst), dycl_aligned_free(work);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_AVX2; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        direct = padded = cropped = across = down = 0;
        for (int i = 0; i < 400; i++) check(isa);
        if (direct && padded && cropped && across && down) continue;
        printf("FAIL: not all of it was drawn: %d of single pixels, %d padded, %d cropped, %d across, %d down\n",
               direct, padded, cropped, across, down);
        failures++;
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
