/* Max pooling against torch's definition, to the bit: every ISA, both orders, random windows, NaN, infinities and both
 * zeros. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/max_pool.h"
#include "random.h"

static int failures;

static float element(void) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, -0.0f, 0.0f};
    return below(8) ? (float)pick(-5, 5) : odd[below(7)];
}

/* ATen/native/cpu/MaxPoolKernel.cpp: the first largest of the window's rows; a NaN is larger than all before it. */
static float expected(const dycl_max_pool *p, const float *in, int64_t n, int64_t c, int64_t oy, int64_t ox) {
    float best = -INFINITY;
    for (int64_t ky = 0; ky < p->kernel[0]; ky++)
        for (int64_t kx = 0; kx < p->kernel[1]; kx++) {
            int64_t y = oy * p->stride[0] - p->pad[0] + ky * p->dilation[0],
                    x = ox * p->stride[1] - p->pad[1] + kx * p->dilation[1];
            if (y < 0 || y >= p->h || x < 0 || x >= p->w) continue;
            float value =
                in[p->channels_last ? ((n * p->h + y) * p->w + x) * p->c + c : ((n * p->c + c) * p->h + y) * p->w + x];
            if (value > best || value != value) best = value;
        }
    return best;
}

static int same(float a, float b) { return (a != a && b != b) || !memcmp(&a, &b, sizeof a); }

/* torch's again: the window's gradient goes where the one above was found. */
static void expect_back(const dycl_max_pool *p, const float *in, const float *gradient, float *out) {
    const int64_t pixel = p->channels_last ? p->c : 1, between = p->channels_last ? 1 : p->h * p->w;
    memset(out, 0, (size_t)(p->n * p->c * p->h * p->w) * sizeof *out);
    for (int64_t plane = 0; plane < p->n * p->c; plane++) {
        const int64_t n = plane / p->c, c = plane % p->c, base = n * p->c * p->h * p->w + c * between;
        for (int64_t at = 0; at < p->oh * p->ow; at++) {
            const int64_t oy = at / p->ow, ox = at % p->ow, all = p->oh * p->ow;
            float best = -INFINITY;
            int64_t found = -1;
            for (int64_t ky = 0; ky < p->kernel[0]; ky++)
                for (int64_t kx = 0; kx < p->kernel[1]; kx++) {
                    int64_t y = oy * p->stride[0] - p->pad[0] + ky, x = ox * p->stride[1] - p->pad[1] + kx;
                    if (y < 0 || y >= p->h || x < 0 || x >= p->w) continue;
                    int64_t here = base + (y * p->w + x) * pixel;
                    if (found < 0) found = here;
                    if (in[here] > best || in[here] != in[here]) best = in[here], found = here;
                }
            out[found] += gradient[n * p->c * all + (p->channels_last ? at * p->c + c : c * all + at)];
        }
    }
}

static void check_back(dycl_isa isa, const dycl_max_pool *p, const float *in) {
    int64_t count = p->n * p->c * p->h * p->w, results = p->n * p->c * p->oh * p->ow;
    float *gradient = dycl_alloc((size_t)results * sizeof *gradient), *want = dycl_alloc((size_t)count * sizeof *want),
          *out = dycl_alloc((size_t)(count + 1) * sizeof *out);
    for (int64_t i = 0; i < results; i++) gradient[i] = below(20) ? (float)below(1000) / 7 : element();
    out[count] = 12345;
    for (int64_t i = 0; i < count; i++) out[i] = NAN;
    expect_back(p, in, gradient, want);
    dycl_kern_max_pool2d_back(out, gradient, in, p);
    if (out[count] != 12345) failures++, printf("FAIL %s writes past the end going back\n", dycl_isa_name(isa));
    for (int64_t i = 0; i < count; i++)
        if (!same(out[i], want[i]) && failures++ < 20)
            printf("FAIL %s back %d [%lld,%lld], kernel %lld,%lld, stride %lld,%lld at %lld: %g instead of %g\n",
                   dycl_isa_name(isa), p->channels_last, (long long)p->h, (long long)p->w, (long long)p->kernel[0],
                   (long long)p->kernel[1], (long long)p->stride[0], (long long)p->stride[1], (long long)i,
                   (double)out[i], (double)want[i]);
    dycl_free(gradient), dycl_free(want), dycl_free(out);
}

static void check(dycl_isa isa, int wide) {
    dycl_max_pool p = {pick(1, 2), pick(1, 70), pick(1, 9),   wide ? pick(1000, 3000) : pick(1, 40), 0, 0, {0}, {0},
                       {0},        {0},         (int)below(2)};
    if (wide) p.c = pick(1, 3);
    if (wide && below(2)) p.h = pick(100, 300), p.w = pick(20, 200); /* several bands */
    const int usual = below(3) == 0;                                 /* windows that have loops of their own */
    const int64_t kernel = pick(2, 3), stride = pick(1, 2);
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = usual ? kernel : i && wide && below(2) ? pick(900, 1300) : pick(1, 5);
        p.stride[i] = usual ? stride : pick(1, 3);
        p.dilation[i] = wide || usual ? 1 : pick(1, 3);
        p.pad[i] = pick(0, p.kernel[i] / 2);
        int64_t reach = (p.kernel[i] - 1) * p.dilation[i] + 1, seen = (i ? p.w : p.h) + 2 * p.pad[i];
        if (seen < reach) return;
        *(i ? &p.ow : &p.oh) =
            (seen - reach) / p.stride[i] + 1 + below(2); /* now and then one more, as with ceil_mode */
    }
    int64_t in_count = p.n * p.c * p.h * p.w, out_count = p.n * p.c * p.oh * p.ow;
    float *in = dycl_alloc((size_t)in_count * sizeof *in), *out = dycl_alloc((size_t)(out_count + 1) * sizeof *out);
    for (int64_t i = 0; i < in_count; i++) in[i] = element();
    out[out_count] = 12345;
    dycl_kern_max_pool2d(out, in, &p);
    if (out[out_count] != 12345) failures++, printf("FAIL %s writes past the end\n", dycl_isa_name(isa));
    for (int64_t i = 0; i < out_count; i++) {
        int64_t c = p.channels_last ? i % p.c : i / (p.oh * p.ow) % p.c, at = p.channels_last ? i / p.c : i;
        int64_t ox = at % p.ow, oy = at / p.ow % p.oh, n = i / (p.c * p.oh * p.ow);
        float want = expected(&p, in, n, c, oy, ox);
        if (!same(out[i], want) && failures++ < 20)
            printf("FAIL %s [%lld,%lld,%lld,%lld] at %lld: %g instead of %g\n", dycl_isa_name(isa), (long long)p.n,
                   (long long)p.c, (long long)p.h, (long long)p.w, (long long)i, (double)out[i], (double)want);
    }
    int full = 1; /* the last window begins inside: ceil_mode makes no others */
    for (int i = 0; i < 2; i++)
        full &= ((i ? p.ow : p.oh) - 1) * p.stride[i] - p.pad[i] < (i ? p.w : p.h) && p.dilation[i] == 1;
    if (full) check_back(isa, &p, in);
    dycl_free(in), dycl_free(out);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_SCALAR; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        for (int i = 0; i < 1000; i++) check(isa, i % 40 == 0);
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
