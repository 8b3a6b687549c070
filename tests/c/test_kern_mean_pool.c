/* Means over windows, and their gradients, against torch's definition in double: every ISA, both orders, random and
 * adaptive windows, what lies past the end, and -0. */
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "kern/mean_pool.h"
#include "random.h"

static int failures;

typedef struct {
    int64_t begin, end, count;
} range;

/* ATen/native/cpu/AvgPoolKernel.cpp, AdaptiveAvgPoolKernel.cpp */
static range range_of(const dycl_mean_pool *p, int axis, int64_t o) {
    int64_t size = axis ? p->w : p->h, made = axis ? p->ow : p->oh;
    if (p->adaptive) {
        int64_t begin = o * size / made, end = (int64_t)ceil((double)((o + 1) * size) / (double)made);
        return (range){begin, end, end - begin};
    }
    int64_t from = o * p->stride[axis] - p->pad[axis], to = from + p->kernel[axis];
    if (to > size + p->pad[axis]) to = size + p->pad[axis];
    int64_t padded = to - from;
    if (from < 0) from = 0;
    if (to > size) to = size;
    return (range){from, to, p->padded ? padded : to - from};
}

static int64_t at(const dycl_mean_pool *p, int64_t n, int64_t c, int64_t y, int64_t x, int64_t h, int64_t w) {
    return p->channels_last ? ((n * h + y) * w + x) * p->c + c : ((n * p->c + c) * h + y) * w + x;
}

static void compare(dycl_isa isa, const char *what, const dycl_mean_pool *p, const float *got, const double *want,
                    const double *size, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int same = fabs((double)got[i] - want[i]) <= 1e-6 * size[i] && (size[i] != 0 || !signbit(got[i]));
        if (!same && failures++ < 20)
            printf("FAIL %s %s %d [%lld,%lld] to [%lld,%lld], kernel %lld,%lld, stride %lld,%lld at %lld: %g, not %g\n",
                   dycl_isa_name(isa), what, p->channels_last, (long long)p->h, (long long)p->w, (long long)p->oh,
                   (long long)p->ow, (long long)p->kernel[0], (long long)p->kernel[1], (long long)p->stride[0],
                   (long long)p->stride[1], (long long)i, (double)got[i], want[i]);
    }
    if (got[count] != 12345) failures++, printf("FAIL %s %s writes past the end\n", dycl_isa_name(isa), what);
}

static float *elements(int64_t count) {
    float *a = dycl_alloc((size_t)(count + 1) * sizeof *a);
    for (int64_t i = 0; i < count; i++) a[i] = below(8) ? (float)below(2000) / 7 - 100 : -0.0f;
    a[count] = 12345;
    return a;
}

static void check_windows(dycl_isa isa, const dycl_mean_pool *p) {
    int64_t from = p->n * p->c * p->h * p->w, to = p->n * p->c * p->oh * p->ow;
    float *in = elements(from), *gradient = elements(to), *out = elements(to), *back = elements(from);
    double *want = dycl_alloc((size_t)(to + from) * sizeof *want),
           *size = dycl_alloc((size_t)(to + from) * sizeof *size);
    double *given = want + to, *given_size = size + to;
    for (int64_t i = 0; i < to + from; i++) want[i] = size[i] = 0;
    for (int64_t i = 0; i < from; i++) back[i] = NAN;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t c = 0; c < p->c; c++)
            for (int64_t oy = 0; oy < p->oh; oy++)
                for (int64_t ox = 0; ox < p->ow; ox++) {
                    range v = range_of(p, 0, oy), h = range_of(p, 1, ox);
                    int64_t o = at(p, n, c, oy, ox, p->oh, p->ow);
                    double by = (double)(v.count * h.count);
                    for (int64_t y = v.begin; y < v.end; y++)
                        for (int64_t x = h.begin; x < h.end; x++) {
                            int64_t i = at(p, n, c, y, x, p->h, p->w);
                            want[o] += (double)in[i] / by, size[o] += fabs((double)in[i]) / by;
                            given[i] += (double)gradient[o] / by, given_size[i] += fabs((double)gradient[o]) / by;
                        }
                }
    dycl_kern_mean_pool2d(out, in, p);
    compare(isa, "mean", p, out, want, size, to);
    dycl_kern_mean_pool2d_back(back, gradient, p);
    compare(isa, "back", p, back, given, given_size, from);
    dycl_free(in), dycl_free(gradient), dycl_free(out), dycl_free(back), dycl_free(want), dycl_free(size);
}

/* wide: rows in several pieces, windows wider than one, more windows than fit */
static void check(dycl_isa isa, int wide) {
    dycl_mean_pool p = {pick(1, 2), pick(1, 70),   pick(1, 9),    pick(1, 40),  0, 0, {1, 1}, {1, 1},
                        {0},        (int)below(2), (int)below(2), (int)below(2)};
    if (wide) p.c = pick(1, 3), p.h = pick(1, 3), p.w = pick(900, 3000);
    if (below(4) == 0) p.c = pick(250, 600), p.h = pick(1, 4);
    if (wide && p.c > 3) p.w = pick(20, 60);
    for (int i = 0; i < 2; i++) {
        int64_t size = i ? p.w : p.h, *made = i ? &p.ow : &p.oh;
        if (p.adaptive) {
            *made = below(4) ? pick(1, size + 3) : 1;
            if (wide && i && p.c < 4 && below(4) == 0) p.w = pick(1, 3), *made = pick(2000, 4000);
            continue;
        }
        p.kernel[i] = i && wide && below(2) ? pick(60, 1300) : pick(1, 4);
        p.stride[i] = i && wide && below(4) == 0 ? pick(1, 800) : pick(1, 3);
        p.pad[i] = pick(0, p.kernel[i] / 2);
        if (size + 2 * p.pad[i] < p.kernel[i]) return;
        *made = (size + 2 * p.pad[i] - p.kernel[i]) / p.stride[i] + 1;
        if (below(2) && *made * p.stride[i] < size + p.pad[i]) ++*made; /* as with ceil_mode */
    }
    check_windows(isa, &p);
}

int main(void) {
    for (dycl_isa isa = DYCL_ISA_SCALAR; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        for (int i = 0; i < 600; i++) check(isa, i % 10 == 0);
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
