#include "kern/mean_pool.h"

#include "kern/parallel.h"

#define CHANNELS 16 /* a cache line of them */

DYCL_ISA_CHOICE(const dycl_mean_pool_table, dycl_mean_pool)

/* Which channels are part `part` of so many. */
static int64_t channel_of(const dycl_mean_pool *p, int64_t part, int64_t parts) {
    int64_t lines = (p->c + CHANNELS - 1) / CHANNELS, at = lines * part / parts * CHANNELS;
    return at < p->c ? at : p->c;
}

static int threads_for(const dycl_mean_pool *p) {
    return dycl_kern_threads((size_t)(p->n * p->c) * (size_t)(p->h * p->w + p->oh * p->ow) * sizeof(float));
}

void dycl_kern_mean_pool2d(float *out, const float *in, const dycl_mean_pool *p) {
    const dycl_mean_pool_table *table = dycl_mean_pool_for(dycl_cpu_isa());
    const int threads = threads_for(p);
    const int64_t rows = p->n * p->oh, parts = rows >= threads ? 1 : threads;
    const int64_t tasks = p->channels_last ? rows * parts : threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t task = 0; task < tasks; task++) {
        if (!p->channels_last) {
            int64_t planes = p->n * p->c;
            table->planes(out, in, p, planes * task / tasks, planes * (task + 1) / tasks);
            continue;
        }
        int64_t row = task / parts, part = task % parts;
        table->pixels(out + row * p->ow * p->c, in + row / p->oh * p->h * p->w * p->c, p, row % p->oh,
                      channel_of(p, part, parts), channel_of(p, part + 1, parts));
    }
}

void dycl_kern_mean_pool2d_back(float *out, const float *gradient, const dycl_mean_pool *p) {
    const dycl_mean_pool_table *table = dycl_mean_pool_for(dycl_cpu_isa());
    const int threads = threads_for(p);
    const int64_t parts = p->n >= threads ? 1 : threads, tasks = p->channels_last ? p->n * parts : threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t task = 0; task < tasks; task++) {
        if (!p->channels_last) {
            int64_t planes = p->n * p->c;
            table->planes_back(out, gradient, p, planes * task / tasks, planes * (task + 1) / tasks);
            continue;
        }
        int64_t image = task / parts * p->c, part = task % parts;
        table->pixels_back(out + image * p->h * p->w, gradient + image * p->oh * p->ow, p, channel_of(p, part, parts),
                           channel_of(p, part + 1, parts));
    }
}
