#include "kern/parallel.h"
#include "kern/red.h"

/* torch's windows: from floor(i * in / out) to ceil((i + 1) * in / out). */
static int64_t window_begin(int64_t i, int64_t in, int64_t out) { return i * in / out; }
static int64_t window_end(int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; }

static void pool_plane(const dycl_red_table *table, float *out, const float *in, int64_t h, int64_t w, int64_t oh,
                       int64_t ow) {
    if (oh == 1 && ow == 1) {
        float sum;
        table->red[DYCL_RED_SUM][DYCL_F32](&sum, in, NULL, (size_t)(h * w));
        *out = sum / (float)(h * w);
        return;
    }
    for (int64_t y = 0; y < oh; y++) {
        int64_t y0 = window_begin(y, h, oh), y1 = window_end(y, h, oh);
        for (int64_t x = 0; x < ow; x++) {
            int64_t x0 = window_begin(x, w, ow), x1 = window_end(x, w, ow);
            double sum = 0;
            for (int64_t r = y0; r < y1; r++)
                for (int64_t c = x0; c < x1; c++) sum += (double)in[r * w + c];
            out[y * ow + x] = (float)(sum / (double)((y1 - y0) * (x1 - x0)));
        }
    }
}

void dycl_kern_adaptive_avg_pool2d(float *out, const float *in, int64_t planes, int64_t h, int64_t w, int64_t oh,
                                   int64_t ow) {
    const dycl_red_table *table = dycl_kern_red_table(dycl_cpu_isa());
    int threads = dycl_kern_threads((size_t)planes * (size_t)(h * w + oh * ow) * sizeof(float));
    if (threads < 2) {
        for (int64_t p = 0; p < planes; p++) pool_plane(table, out + p * oh * ow, in + p * h * w, h, w, oh, ow);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < planes; p++) pool_plane(table, out + p * oh * ow, in + p * h * w, h, w, oh, ow);
}
