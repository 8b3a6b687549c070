#include "kern/group_norm_back.h"
#include "kern/parallel.h"
#include "kern/red.h"

#define PIECE  32768 /* elements of a group that one thread measures at a time */
#define PIECES 64
#define SMALL  4096 /* a group that is measured at once */

typedef struct {
    const dycl_red_table *table;
    const dycl_group_row *rows;
    dycl_row_fn layer_norm;
    float *out;
    const float *in, *weight, *bias;
    int64_t channels, inner, groups; /* channels: of one group */
    double eps;
} norm_plan;

/* The pieces depend on the size only, so the result does not depend on the number of threads. */
dycl_moments dycl_kern_group_moments(dycl_dtype dtype, const void *in, int64_t n, int threads) {
    const dycl_red_table *table = dycl_kern_red_table(dycl_cpu_isa());
    const int64_t size = (int64_t)dycl_dtype_size(dtype);
    const char *from = in;
    dycl_moments parts[PIECES], all = {0, 0, 0};
    int64_t pieces = n / PIECE < 1 ? 1 : n / PIECE > PIECES ? PIECES : n / PIECE;
    if (threads < 2) {
        for (int64_t i = 0; i < pieces; i++)
            parts[i] = dycl_kern_moments(table, dtype, from + n * i / pieces * size,
                                         (size_t)(n * (i + 1) / pieces - n * i / pieces));
    } else {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < pieces; i++)
            parts[i] = dycl_kern_moments(table, dtype, from + n * i / pieces * size,
                                         (size_t)(n * (i + 1) / pieces - n * i / pieces));
    }
    for (int64_t i = 0; i < pieces; i++) all = dycl_moments_merge(all, parts[i]);
    return all;
}

static void scale_channel(const norm_plan *p, int64_t at, int64_t channel, float mean, double rstd) {
    double scale = p->weight ? rstd * (double)p->weight[channel] : rstd;
    if (!isfinite(scale)) { /* as torch computes it, which makes a difference to infinities only */
        float factor = (float)scale, shift = (p->bias ? p->bias[channel] : 0) - factor * mean;
        for (int64_t i = 0; i < p->inner; i++) p->out[at + i] = p->in[at + i] * factor + shift;
        return;
    }
    p->table->center_scale(p->out + at, p->in + at, mean, (float)scale, p->bias ? p->bias[channel] : 0,
                           (size_t)p->inner);
}

/* threads: for the inside of this group. */
static void norm_group(const norm_plan *p, int64_t group, int threads) {
    int64_t size = p->channels * p->inner, first = group % p->groups * p->channels, start = group * size;
    int finite = !p->weight || dycl_kern_all_finite(p->weight + first, (size_t)p->channels);
    if (p->inner == 1 && finite) { /* a group is a row then, and its weights are too */
        p->layer_norm(p->out + start, p->in + start, p->weight ? p->weight + first : NULL,
                      p->bias ? p->bias + first : NULL, (size_t)size, p->eps);
        return;
    }
    dycl_moments m = {(double)size, 0, 0};
    if (size < SMALL)
        m.m2 = p->rows->deviation(&m.mean, p->in + start, (size_t)size);
    else
        m = dycl_kern_group_moments(DYCL_F32, p->in + start, size, threads);
    double rstd = 1 / sqrt(m.m2 / m.n + p->eps);
    if (threads < 2) {
        for (int64_t c = 0; c < p->channels; c++)
            scale_channel(p, start + c * p->inner, first + c, (float)m.mean, rstd);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t c = 0; c < p->channels; c++)
            scale_channel(p, start + c * p->inner, first + c, (float)m.mean, rstd);
    }
}

void dycl_kern_group_norm(float *out, const float *in, const float *weight, const float *bias, int64_t n, int64_t c,
                          int64_t inner, int64_t groups, double eps) {
    dycl_isa isa = dycl_cpu_isa();
    norm_plan plan = {dycl_kern_red_table(isa),
                      dycl_kern_group_row(DYCL_F32),
                      dycl_kern_row(isa, DYCL_ROW_LAYER_NORM, DYCL_F32),
                      out,
                      in,
                      weight,
                      bias,
                      c / groups,
                      inner,
                      groups,
                      eps};
    int64_t count = n * groups;
    if (count == 0 || c == 0 || inner == 0) return;
    int threads = dycl_kern_threads((size_t)(n * c) * (size_t)inner * sizeof(float));
    if (threads < 2 || count < threads) {
        for (int64_t g = 0; g < count; g++) norm_group(&plan, g, threads);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t g = 0; g < count; g++) norm_group(&plan, g, 1);
}
