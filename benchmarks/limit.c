/* What the machine can do at best, on threads of its own: reading memory, updating it, and multiply-adds that wait
 * for nothing. */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { STREAMS = 8, SUMS = 24, MOST = 256 };

#if defined(__AVX512F__)
typedef float vec __attribute__((vector_size(64)));
#else
typedef float vec __attribute__((vector_size(32)));
#endif
enum { LANES = sizeof(vec) / sizeof(float) };

enum { READ, UPDATE, FMA };

struct job {
    const float *at;
    float *written[3]; /* for updates */
    size_t n;          /* floats to read, or rounds of multiply-adds */
    int kind;
    float out;
};

/* At STREAMS places at once: a core keeps more lines under way than with one stream. */
static void read_all(struct job *job)
{
    size_t part = job->n / STREAMS / (4 * LANES) * (4 * LANES);
    vec sum[STREAMS] = {{0}};
    for (size_t i = 0; i < part; i += 4 * LANES) {
#pragma GCC unroll 8
        for (int s = 0; s < STREAMS; s++) {
            const float *at = job->at + s * part + i;
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) {
                sum[s] += *(const vec *)(at + k * LANES);
            }
            __builtin_prefetch(at + 64 * LANES);
        }
    }
    float all = 0;
    for (size_t i = STREAMS * part; i < job->n; i++) {
        all += job->at[i];
    }
    for (int s = 0; s < STREAMS; s++) {
        for (int k = 0; k < LANES; k++) {
            all += sum[s][k];
        }
    }
    job->out = all;
}

static void multiply_add(struct job *job)
{
    vec sum[SUMS] = {{0}}, a = {0}, b = {0};
    for (int k = 0; k < LANES; k++) {
        a[k] = 1.0f, b[k] = 0x1p-30f;
    }
    for (size_t i = 0; i < job->n; i++) {
#pragma GCC unroll 24
        for (int s = 0; s < SUMS; s++) {
            sum[s] = sum[s] * a + b;
        }
        __asm__ volatile("" : "+x"(a), "+x"(b));
    }
    float all = 0;
    for (int s = 0; s < SUMS; s++) {
        for (int k = 0; k < LANES; k++) {
            all += sum[s][k];
        }
    }
    job->out = all;
}

/* What an optimizer with two averages reads and writes, with next to no arithmetic. */
static void update(struct job *job)
{
    const float *restrict gradient = job->at;
    float *restrict a = job->written[0], *restrict b = job->written[1], *restrict c = job->written[2];
    for (size_t i = 0; i < job->n; i++) {
        float sum = gradient[i] + a[i] + b[i] + c[i];
        a[i] = b[i] = c[i] = 0.25f * sum;
    }
}

static void *run(void *argument)
{
    struct job *job = argument;
    switch (job->kind) {
    case READ:
        read_all(job);
        break;
    case UPDATE:
        update(job);
        break;
    default:
        multiply_add(job);
    }
    return NULL;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one run on `threads` threads, -1 when they cannot be had; *out keeps the work from being removed. */
static double timed(struct job *jobs, int threads, float *out)
{
    pthread_t ids[MOST];
    double start = seconds();
    int made = 1;
    for (; made < threads; made++) {
        if (pthread_create(&ids[made], NULL, run, &jobs[made])) {
            break;
        }
    }
    run(&jobs[0]);
    for (int k = 1; k < made; k++) {
        pthread_join(ids[k], NULL);
    }
    double taken = seconds() - start;
    for (int k = 0; k < made; k++) {
        *out += jobs[k].out;
    }
    return made == threads ? taken : -1;
}

double limit_read(const float *at, size_t n, int threads, float *out)
{
    struct job jobs[MOST] = {{0}};
    if (threads < 1 || threads > MOST) {
        return -1;
    }
    size_t part = n / (size_t)threads / LANES * LANES;
    for (int k = 0; k < threads; k++) {
        jobs[k] = (struct job){.at = at + (size_t)k * part, .n = k + 1 < threads ? part : n - (size_t)k * part};
    }
    return timed(jobs, threads, out);
}

double limit_update(const float *gradient, float *a, float *b, float *c, size_t n, int threads, float *out)
{
    struct job jobs[MOST] = {{0}};
    if (threads < 1 || threads > MOST) {
        return -1;
    }
    size_t part = n / (size_t)threads / LANES * LANES;
    for (int k = 0; k < threads; k++) {
        size_t begin = (size_t)k * part;
        jobs[k] = (struct job){.at = gradient + begin,
                               .written = {a + begin, b + begin, c + begin},
                               .n = k + 1 < threads ? part : n - begin,
                               .kind = UPDATE};
    }
    return timed(jobs, threads, out);
}

/* rounds of multiply-adds a thread; limit_fma_flop() operations each. */
double limit_fma(size_t rounds, int threads, float *out)
{
    struct job jobs[MOST] = {{0}};
    if (threads < 1 || threads > MOST) {
        return -1;
    }
    for (int k = 0; k < threads; k++) {
        jobs[k] = (struct job){.n = rounds, .kind = FMA};
    }
    return timed(jobs, threads, out);
}

int limit_fma_flop(void)
{
    return 2 * SUMS * LANES;
}
