#include "kern/max_pool.h"

#include "kern/parallel.h"

#define CHANNELS 16 /* a cache line of them */

DYCL_ISA_CHOICE(const dycl_max_pool_table, dycl_max_pool)

/* One task: a row of the result of an image, or a plane; a part of one where there are fewer planes than threads. */
static void run(const dycl_max_pool_table *table, float *out, const float *in, const dycl_max_pool *p, int64_t task,
                int64_t parts) {
    if (p->channels_last) {
        table->pixels(out + task * p->ow * p->c, in + task / p->oh * p->h * p->w * p->c, p, task % p->oh);
        return;
    }
    int64_t at = task / parts, part = task % parts;
    table->plane(out + at * p->oh * p->ow, in + at * p->h * p->w, p, p->oh * part / parts, p->oh * (part + 1) / parts);
}

void dycl_kern_max_pool2d(float *out, const float *in, const dycl_max_pool *p) {
    const dycl_max_pool_table *table = dycl_max_pool_for(dycl_cpu_isa());
    int threads = dycl_kern_threads((size_t)(p->n * p->c) * (size_t)(p->h * p->w + p->oh * p->ow) * sizeof(float));
    int64_t parts = p->n * p->c >= 4 * threads ? 1 : threads,
            tasks = p->channels_last ? p->n * p->oh : p->n * p->c * parts;
    if (threads < 2) {
        for (int64_t task = 0; task < tasks; task++) run(table, out, in, p, task, parts);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < tasks; task++) run(table, out, in, p, task, parts);
}

/* One task: a plane, or of an image a part of its channels. */
static void run_back(const dycl_max_pool_table *table, float *out, const float *gradient, const float *in,
                     const dycl_max_pool *p, int64_t task, int64_t parts) {
    int64_t from = p->h * p->w, to = p->oh * p->ow;
    if (!p->channels_last) {
        table->plane_back(out + task * from, gradient + task * to, in + task * from, p);
        return;
    }
    int64_t n = task / parts, vectors = (p->c + CHANNELS - 1) / CHANNELS, part = task % parts;
    int64_t begin = vectors * part / parts * CHANNELS, end = vectors * (part + 1) / parts * CHANNELS;
    from *= n * p->c, to *= n * p->c;
    table->pixels_back(out + from, gradient + to, in + from, p, begin, end < p->c ? end : p->c);
}

void dycl_kern_max_pool2d_back(float *out, const float *gradient, const float *in, const dycl_max_pool *p) {
    const dycl_max_pool_table *table = dycl_max_pool_for(dycl_cpu_isa());
    int64_t planes = p->n * p->c;
    int threads = dycl_kern_threads((size_t)planes * (size_t)(2 * p->h * p->w + p->oh * p->ow) * sizeof(float));
    int64_t parts = p->n >= threads ? 1 : threads, tasks = p->channels_last ? p->n * parts : planes;
    if (threads < 2) {
        for (int64_t i = 0; i < tasks; i++) run_back(table, out, gradient, in, p, i, parts);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++) run_back(table, out, gradient, in, p, i, parts);
}
