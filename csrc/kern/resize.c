#include <math.h>
#include <string.h>

#include "kern/kern.h"
#include "kern/parallel.h"

/* ---- Positions and weights, in float as torch computes them (ATen/native/UpSample.h) */

int dycl_kern_resize_taps(dycl_resize_kind kind) {
    return kind == DYCL_RESIZE_LINEAR ? 2 : kind == DYCL_RESIZE_CUBIC ? 4 : 1;
}

static float axis_scale(int align_corners, int64_t in, int64_t out, double scale) {
    if (align_corners) return out > 1 ? (float)(in - 1) / (float)(out - 1) : 0;
    return scale > 0 ? (float)(1 / scale) : (float)in / (float)out;
}

static int64_t at_most(int64_t i, int64_t last) { return i < last ? i : last; }

/* Keys' convolution with a = -0.75: near, for distances up to 1, and far, up to 2. */
static float cubic_near(float x) {
    const float a = -0.75f;
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}
static float cubic_far(float x) {
    const float a = -0.75f;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

void dycl_kern_resize_axis(dycl_resize_kind kind, int align_corners, int64_t in, int64_t out, double scale,
                           int64_t *index, float *weight) {
    float step = axis_scale(align_corners, in, out, scale);
    for (int64_t i = 0; i < out; i++) {
        if (kind == DYCL_RESIZE_NEAREST || kind == DYCL_RESIZE_NEAREST_EXACT) {
            float at = kind == DYCL_RESIZE_NEAREST ? (float)i * step : ((float)i + 0.5f) * step;
            index[i] = at_most((int64_t)floorf(at), in - 1);
            weight[i] = 1;
            continue;
        }
        float at = align_corners ? step * (float)i
                                 : fmaf(step, (float)i + 0.5f, -0.5f); /* one rounding, as in torch's build */
        if (kind == DYCL_RESIZE_LINEAR) {
            if (at < 0) at = 0;
            if (in == out) at = (float)i; /* torch copies then, whatever the scale */
        }
        int64_t first = at_most((int64_t)floorf(at), in - 1);
        float past = at - (float)first;
        past = past < 0 ? 0 : past > 1 ? 1 : past;
        if (kind == DYCL_RESIZE_LINEAR) {
            index[2 * i] = first;
            index[2 * i + 1] =
                in == out ? first : at_most(first + 1, in - 1); /* a neighbour's NaN would come in, times 0 */
            weight[2 * i] = 1 - past;
            weight[2 * i + 1] = past;
            continue;
        }
        for (int k = 0; k < 4; k++) {
            int64_t j = first + k - 1;
            index[4 * i + k] = j < 0 ? 0 : at_most(j, in - 1);
        }
        weight[4 * i] = cubic_far(past + 1);
        weight[4 * i + 1] = cubic_near(past);
        weight[4 * i + 2] = cubic_near(1 - past);
        weight[4 * i + 3] = cubic_far(2 - past);
    }
}

/* ---- Planes */

static void resize_row(float *restrict out, const float *restrict in, const dycl_resize_axis *x) {
    const int64_t *index = x->index;
    const float *weight = x->weight;
    switch (x->taps) {
    case 1:
        for (int64_t i = 0; i < x->out; i++) out[i] = in[index[i]];
        break;
    case 2:
        for (int64_t i = 0; i < x->out; i++)
            out[i] = in[index[2 * i]] * weight[2 * i] + in[index[2 * i + 1]] * weight[2 * i + 1];
        break;
    default:
        for (int64_t i = 0; i < x->out; i++) {
            float sum = in[index[4 * i]] * weight[4 * i];
            for (int k = 1; k < 4; k++) sum += in[index[4 * i + k]] * weight[4 * i + k];
            out[i] = sum;
        }
    }
}

static void blend(float *restrict out, const float *const *row, const float *weight, int64_t width, int64_t taps) {
    const float *a = row[0], *b = row[1];
    if (taps == 2) {
        for (int64_t j = 0; j < width; j++) out[j] = a[j] * weight[0] + b[j] * weight[1];
        return;
    }
    const float *c = row[2], *d = row[3];
    for (int64_t j = 0; j < width; j++)
        out[j] = a[j] * weight[0] + b[j] * weight[1] + c[j] * weight[2] + d[j] * weight[3];
}

/* Rows of the input are resampled along x when they are first needed. The rows that one output row needs follow each
 * other, so `taps` places keep all of them. */
static void resize_plane(float *out, const float *in, const dycl_resize_axis *y, const dycl_resize_axis *x,
                         float *scratch) {
    int64_t kept[4] = {-1, -1, -1, -1}, width = x->out;
    for (int64_t i = 0; i < y->out; i++, out += width) {
        const int64_t *index = y->index + i * y->taps;
        const float *weight = y->weight + i * y->taps;
        if (y->taps == 1) {
            if (i > 0 && index[0] == index[-1])
                memcpy(out, out - width, (size_t)width * sizeof *out);
            else
                resize_row(out, in + index[0] * x->in, x);
            continue;
        }
        const float *row[4] = {scratch, scratch, scratch, scratch};
        for (int64_t k = 0; k < y->taps; k++) {
            int64_t place = index[k] % y->taps;
            float *kept_row = scratch + place * width;
            if (kept[place] != index[k]) resize_row(kept_row, in + index[k] * x->in, x);
            kept[place] = index[k];
            row[k] = kept_row;
        }
        blend(out, row, weight, width, y->taps);
    }
}

void dycl_kern_resize2d(float *out, const float *in, int64_t planes, const dycl_resize_axis *y,
                        const dycl_resize_axis *x, float *scratch, int most_threads) {
    int64_t in_plane = y->in * x->in, out_plane = y->out * x->out;
    int threads = dycl_kern_threads((size_t)planes * (size_t)(in_plane + out_plane) * sizeof(float));
    if (threads > most_threads) threads = most_threads;
    if (threads > planes) threads = (int)planes;
    if (threads < 2) {
        for (int64_t p = 0; p < planes; p++) resize_plane(out + p * out_plane, in + p * in_plane, y, x, scratch);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < planes; p++)
        resize_plane(out + p * out_plane, in + p * in_plane, y, x, scratch + omp_get_thread_num() * x->taps * x->out);
}
