#include "kern/group_norm_back.h"

#include <math.h>
#include <string.h>

#include "kern/parallel.h"
#include "kern/red.h"

DYCL_ISA_CHOICE(const dycl_group_table, dycl_group_table)

const dycl_group_row *dycl_kern_group_row(dycl_dtype dtype) {
    return &dycl_group_table_for(dycl_cpu_isa())->row[dtype == DYCL_F64];
}

#define PARTS 16        /* at most, of images whose groups are rows */
#define NEAR  2048      /* bytes of a row: longer ones would lie one over another in the first cache */
#define CHAIN 64        /* times that rows are added before doubles add them up */
#define LONG  (1 << 17) /* bytes of a group that is measured in pieces */

/* Groups that are rows, of one element a plane, give to the weights element by element; else each plane is summed, and
 * the planes of a channel are added up at the end. Parts depend on the sizes only. */
typedef struct {
    const dycl_groups *b;
    const dycl_group_row *row;
    const char *g, *x, *weight; /* weight: of ones where there is none */
    const double *weights;      /* the same, of planes */
    char *out;
    double *sums; /* [parts, 2, c]: for weight and bias; or [n, c, 2]: for bias and weight */
    char *chains; /* [parts, 2, c] of rows */
    int64_t size, channels, parts;
    int threads;
} job;

static int64_t parts_of(const dycl_groups *b) {
    int64_t bytes = b->n * b->c * (int64_t)dycl_dtype_size(b->dtype);
    return dycl_kern_share(bytes, DYCL_BYTES_PER_THREAD, b->n / 16, PARTS);
}

size_t dycl_kern_group_norm_back_scratch(const dycl_groups *b) {
    size_t size = dycl_dtype_size(b->dtype), c = (size_t)b->c, parts = (size_t)parts_of(b);
    return b->inner == 1 ? c * (size + parts * 2 * (size + sizeof(double)))
                         : c * ((size_t)b->n * 2 + 1) * sizeof(double);
}

/* ---- Rows */

#define FLUSH(type)                                                                                                    \
    for (int64_t i = 0; i < n; i++) sums[i] += (double)((const type *)chains)[i]

static void flush_chains(const job *j, double *sums, char *chains) {
    int64_t n = 2 * j->b->c;
    if (j->b->dtype == DYCL_F32)
        FLUSH(float);
    else
        FLUSH(double);
    memset(chains, 0, (size_t)(n * j->size));
}

static void back_rows(const job *j, int64_t part) {
    const dycl_groups *b = j->b;
    int64_t end = b->n * (part + 1) / j->parts, chain = 0, bytes = b->c * j->size;
    int64_t most = j->channels * j->size <= NEAR ? DYCL_GROUP_ROWS : 1;
    double *sums = j->sums + part * 2 * b->c;
    char *along = j->chains + part * 2 * bytes, *plain = along + bytes;
    for (int64_t i = b->n * part / j->parts, rows; i < end; i += rows) {
        rows = end - i < most ? end - i : most;
        for (int64_t group = 0; group < b->groups; group++) {
            int64_t first = group * j->channels * j->size, at = i * bytes + first;
            j->row->rows(j->out ? j->out + at : NULL, j->g + at, j->x + at, j->weight + first, b->c, (size_t)rows,
                         (size_t)j->channels, b->eps, along + first, plain + first, b->layer);
        }
        if (++chain % CHAIN == 0) flush_chains(j, sums, along);
    }
    flush_chains(j, sums, along);
}

/* ---- Planes */

static void measure(const job *j, const char *x, double *mean, double *scale, int threads) {
    int64_t n = j->channels * j->b->inner;
    dycl_moments m = {(double)n, 0, 0};
    if (n * j->size <= LONG)
        m.m2 = j->row->deviation(&m.mean, x, (size_t)n);
    else
        m = dycl_kern_group_moments(j->b->dtype, x, n, threads);
    *mean = m.mean;
    *scale = 1 / sqrt(m.m2 / m.n + j->b->eps);
    if (j->b->dtype == DYCL_F32) *mean = (double)(float)*mean, *scale = (double)(float)*scale;
}

static void sum_planes(const job *j, int64_t channel, int64_t planes, double m, int threads) {
    int64_t inner = j->b->inner, step = inner * j->size, at = channel * step;
    double *out = j->sums + 2 * channel;
    if (threads < 2) {
        j->row->sums(out, j->g + at, j->x + at, m, (size_t)planes, (size_t)inner);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t p = 0; p < planes; p += DYCL_GROUP_ROWS) /* as one thread takes them */
        j->row->sums(out + 2 * p, j->g + at + p * step, j->x + at + p * step, m,
                     (size_t)(planes - p < DYCL_GROUP_ROWS ? planes - p : DYCL_GROUP_ROWS), (size_t)inner);
}

static void back_planes(const job *j, int64_t channel, int64_t planes, const double *weight, const double k[4]) {
    int64_t at = channel * j->b->inner * j->size;
    j->row->planes(j->out + at, j->g + at, j->x + at, weight, k, (size_t)planes, (size_t)j->b->inner);
}

/* threads: for the inside of this group. */
static void back_group(const job *j, int64_t group, int threads) {
    int64_t first = group * j->channels;
    const double *weight = j->weights + group % j->b->groups * j->channels;
    double *sums = j->sums + 2 * first, count = (double)(j->channels * j->b->inner), all[2] = {0, 0}, mean, scale;
    measure(j, j->x + first * j->b->inner * j->size, &mean, &scale, threads);
    double k[4] = {scale, mean, 0, 0};
    for (int pass = 0;; pass++) {
        sum_planes(j, first, j->channels, k[1], threads);
        for (int i = 0; i < 2; i++) {
            all[i] = 0;
            for (int64_t c = 0; c < j->channels; c++) all[i] += weight[c] * sums[2 * c + i];
        }
        if (pass || (isfinite(all[0]) && isfinite(all[1]))) break;
        k[1] = 0; /* as torch computes it, which makes a difference to infinities only */
    }
    double from = mean - k[1]; /* the sums are not of x - mean */
    k[2] = (all[0] * from - all[1]) * scale * scale * scale / count;
    k[3] = -k[2] * from - all[0] * scale / count;
    for (int64_t c = 0; c < j->channels; c++) sums[2 * c + 1] = (sums[2 * c + 1] - sums[2 * c] * from) * scale;
    if (!j->out) return;
    if (threads < 2) {
        back_planes(j, first, j->channels, weight, k);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < j->channels; c++) back_planes(j, first + c, 1, weight + c, k);
}

/* ---- Both */

static void run(const job *j, int64_t tasks, int by_rows) {
    if (j->threads < 2 || (!by_rows && tasks < j->threads)) {
        for (int64_t i = 0; i < tasks; i++)
            if (by_rows)
                back_rows(j, i);
            else
                back_group(j, i, j->threads);
        return;
    }
#pragma omp parallel for num_threads(j->threads) schedule(static)
    for (int64_t i = 0; i < tasks; i++)
        if (by_rows)
            back_rows(j, i);
        else
            back_group(j, i, 1);
}

void dycl_kern_group_norm_back(const dycl_groups *b, const void *gradient, const void *x, const void *weight,
                               void *const out[3], void *scratch) {
    int64_t size = (int64_t)dycl_dtype_size(b->dtype);
    int by_rows = b->inner == 1;
    job j = {.b = b, .g = gradient, .x = x, .weight = weight, .out = out[0], .sums = scratch, .size = size};
    if (b->c == 0) return;
    j.row = dycl_kern_group_row(b->dtype);
    j.channels = b->c / b->groups;
    j.parts = parts_of(b);
    j.threads = dycl_kern_threads((size_t)(b->n * b->c * b->inner * size) * 3);
    int64_t rows_of_sums = by_rows ? j.parts : b->n;
    j.chains = (char *)(j.sums + rows_of_sums * 2 * b->c);
    if (by_rows) memset(j.sums, 0, (size_t)(j.parts * 2 * b->c) * (sizeof(double) + (size_t)size));
    if (!by_rows) {
        double *weights = (double *)j.chains;
        for (int64_t c = 0; c < b->c; c++) weights[c] = weight ? dycl_float_at(b->dtype, weight, c) : 1;
        j.weights = weights;
    } else if (!weight) {
        char *ones = j.chains + j.parts * 2 * b->c * size;
        for (int64_t c = 0; c < b->c; c++) dycl_float_put(b->dtype, ones, c, 1);
        j.weight = ones;
    }
    if (b->n > 0 && b->inner > 0)
        run(&j, by_rows ? j.parts : b->n * b->groups, by_rows);
    else
        rows_of_sums = 0;
    int64_t row = 2 * b->c;
    for (int64_t r = 1; r < rows_of_sums; r++)
        for (int64_t c = 0; c < row; c++) j.sums[c] += j.sums[r * row + c];
    for (int i = 1; i < 3; i++)
        for (int64_t c = 0; c < b->c && out[i]; c++)
            dycl_float_put(b->dtype, out[i], c,
                           rows_of_sums == 0 ? 0
                           : by_rows         ? j.sums[(i - 1) * b->c + c]
                                             : j.sums[2 * c + (i == 1)]);
}
