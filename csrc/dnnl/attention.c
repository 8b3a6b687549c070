#include "dnnl/internal.h"
#include "kern/gemm.h"
#include "kern/kern.h"
#include "kern/scores.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Scores of a tile of query rows stay in cache: two products and a softmax over whole rows in between. The products are
 * our own (kern/gemm.h), with keys and values packed for each tile, or sgemm's where there are too few query rows to
 * pack anything for. No primitive is made, so a sequence length never seen before costs nothing. */
#define PACKED_ROWS  6
#define TILE_ROWS    128
#define TILE_BYTES   (256 * 1024)
#define SERIAL_FLOPS 200000.0

typedef struct {
    dycl_attention_desc d;
    int64_t rows, tiles, ld; /* query rows of a tile; tiles of a head; leading dimension of the scores */
    int64_t hides;           /* keys, where a causal mask hides some; else 0 */
    int threads;
    size_t tile_bytes;
    const dycl_gemm_kernel *kernel; /* NULL: sgemm */
    dycl_gemm_layout keys, values;  /* of all keys */
} plan;

/* Fixed at first use: the caller keeps the scratch memory while the number of threads may change under it. */
static int thread_cap(void) {
    static atomic_int cap;
    int n = atomic_load_explicit(&cap, memory_order_relaxed);
    if (n) return n;
    n = omp_get_num_procs() > omp_get_max_threads() ? omp_get_num_procs() : omp_get_max_threads();
    int none = 0;
    return atomic_compare_exchange_strong(&cap, &none, n) ? n : none;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Behind the scores: a factor a row; what follows stays aligned. */
static int64_t factors_room(const plan *p) { return ceil_div(p->rows, 16) * 16; }

static void make_plan(const dycl_attention_desc *desc, plan *p) {
    dycl_attention_desc *d = &p->d;
    int cap = thread_cap();
    memset(p, 0, sizeof *p);
    *d = *desc;
    p->hides = d->causal && d->k_len > 1 ? d->k_len : 0;
    if (d->mask == 0) memset(d->mask_strides, 0, sizeof d->mask_strides);
    if (d->q_len == 1 && d->causal) {
        d->k_len = least(d->k_len, 1);
        d->causal = 0;
    }
    /* One query row a head and several heads on the same keys: read those once, with the heads as rows of one query. */
    int64_t group = d->heads / d->kv_heads;
    if (d->q_len == 1 && group > 1 && d->batch * d->kv_heads >= cap && d->q_strides[1] >= d->width &&
        d->o_strides[1] >= d->v_width) {
        d->q_len = group;
        d->heads = d->kv_heads;
        d->q_strides[2] = d->q_strides[1], d->q_strides[1] *= group;
        d->o_strides[2] = d->o_strides[1], d->o_strides[1] *= group;
        d->mask_strides[2] = d->mask_strides[1], d->mask_strides[1] *= group;
    }
    p->ld = ceil_div(d->k_len, DYCL_SCORES_PAD) * DYCL_SCORES_PAD;
    if (p->ld % 1024 == 0) p->ld += 16; /* rows at a multiple of 4 KB would fight for the same cache sets */
    int64_t most = TILE_BYTES / (int64_t)sizeof(float) / (p->ld ? p->ld : 1), heads = d->batch * d->heads;
    most = most < 16 ? 16 : most > TILE_ROWS ? TILE_ROWS : most;
    while (most > 16 && heads * ceil_div(d->q_len, most) < 2 * cap) most /= 2; /* enough tiles for every thread */
    p->tiles = ceil_div(d->q_len, most);
    p->rows = p->tiles ? ceil_div(d->q_len, p->tiles) : 0;
    p->threads = (int)least(cap, heads * p->tiles);
    p->tile_bytes = (size_t)(p->rows * p->ld + factors_room(p)) * sizeof(float);
    p->kernel = p->rows < PACKED_ROWS ? NULL : dycl_kern_gemm(dycl_cpu_isa());
    if (!p->kernel) return;
    p->keys = (dycl_gemm_layout){p->kernel, d->k_len,        {1, 1, d->width},
                                 {0, 0, 1}, d->k_strides[2], dycl_gemm_vectors(p->kernel, p->rows, d->k_len)};
    p->values = (dycl_gemm_layout){p->kernel,
                                   d->v_width,
                                   {1, 1, d->k_len},
                                   {0, 0, d->v_strides[2]},
                                   1,
                                   dycl_gemm_vectors(p->kernel, p->rows, d->v_width)};
    p->tile_bytes += dycl_gemm_bytes(&p->keys) + dycl_gemm_bytes(&p->values);
}

size_t dycl_attention_scratch(const dycl_attention_desc *desc) {
    plan p;
    if (desc->kv_heads < 1) return 0;
    make_plan(desc, &p);
    return (size_t)p.threads * p.tile_bytes;
}

/* A mask that the kernel does not read: not of floats beside each other. torch makes a bool mask one of 0 and -inf and
 * adds it, so that a score that is NaN stays one where it is masked. */
static void scale_and_mask(const dycl_attention_desc *d, float *row, const void *mask, int64_t offset, int64_t n) {
    int64_t step = d->mask_strides[3];
    if (d->mask == 1) {
        const float *m = (const float *)mask + offset;
        for (int64_t j = 0; j < n; j++) row[j] = row[j] * d->scale + m[j * step];
    } else {
        const uint8_t *m = (const uint8_t *)mask + offset;
        for (int64_t j = 0; j < n; j++) row[j] = row[j] * d->scale + (m[j * step] ? 0 : -INFINITY);
    }
}

/* torch's kernels multiply values by the zeros of keys that a causal mask hides, in blocks of their own, and add -inf
 * to scores that are hidden; here those keys are not read at all. */
static int rows_finite(const float *rows, int64_t count, int64_t stride, int64_t width) {
    if (stride == width) return dycl_kern_all_finite(rows, (size_t)(count * width));
    for (int64_t i = 0; i < count; i++)
        if (!dycl_kern_all_finite(rows + i * stride, (size_t)width)) return 0;
    return 1;
}

/* Each tile looks at its queries; a head's first one at the keys and values, for the first head of its group. */
static int hides_only_numbers(const plan *p, int64_t unit, const float *q, int64_t rows, const float *k,
                              const float *v) {
    const dycl_attention_desc *d = &p->d;
    int first = unit % p->tiles == 0 && unit / p->tiles % d->heads % (d->heads / d->kv_heads) == 0;
    return !p->hides || (rows_finite(q, rows, d->q_strides[2], d->width) &&
                         (!first || (rows_finite(k, p->hides, d->k_strides[2], d->width) &&
                                     rows_finite(v, p->hides, d->v_strides[2], d->v_width))));
}

/* out[rows, form's n] = a[rows, depth] B, B packed here. */
static void multiply(const dycl_gemm_layout *form, const float *a, int64_t a_row, const float *b, float *packed,
                     float *out, int64_t out_row, int64_t rows) {
    dycl_gemm_rows r = {.a = (const char *)a,
                        .run = rows,
                        .runs = 1,
                        .a_row = a_row * (int64_t)sizeof(float),
                        .run_inner = 1,
                        .segment_count = 1};
    r.depth = form->sizes[2];
    r.unique = r.depth * (int64_t)sizeof(float);
    r.c = out;
    r.c_row = out_row;
    dycl_gemm_pack(form, b, NULL, packed, 1);
    dycl_gemm_run(form, &r, packed, &(dycl_gemm_finish){NULL, NULL, -INFINITY, INFINITY}, 1);
}

/* While a softmax runs, what would become subnormal becomes zero: next to a row's other weights, which sum to 1, it is
 * nothing, and a product takes a hundred times as long for each such number (masks of -100 make many). */
static unsigned flush_subnormals(void) {
#if defined(__x86_64__)
    unsigned state = _mm_getcsr();
    _mm_setcsr(state | 0x8040);
    return state;
#else
    return 0;
#endif
}

static void restore_subnormals(unsigned state) {
#if defined(__x86_64__)
    _mm_setcsr(state);
#else
    (void)state;
#endif
}

/* BAIL: there is a result that is not finite. What torch's kernel makes of NaN and infinities depends on its blocks and
 * vectors. */
#define UNUSUAL DYCL_BAIL

static dycl_status run_tile(const plan *p, const dycl_scores_table *table, int64_t unit, const float *q, const float *k,
                            const float *v, const void *mask, float *out, float *scores) {
    const dycl_attention_desc *d = &p->d;
    int64_t tile = unit % p->tiles, head = unit / p->tiles % d->heads, batch = unit / p->tiles / d->heads;
    int64_t kv_head = head / (d->heads / d->kv_heads), first = tile * p->rows, rows = least(p->rows, d->q_len - first);
    int64_t keys =
        d->causal ? least(d->k_len, first + rows) : d->k_len; /* the others are masked in every row of the tile */
    dycl_status status = DYCL_OK;
    q += batch * d->q_strides[0] + head * d->q_strides[1] + first * d->q_strides[2];
    k += batch * d->k_strides[0] + kv_head * d->k_strides[1];
    v += batch * d->v_strides[0] + kv_head * d->v_strides[1];
    out += batch * d->o_strides[0] + head * d->o_strides[1] + first * d->o_strides[2];
    dycl_gemm_layout of_keys = p->keys, of_values = p->values;
    float *factors = scores + p->rows * p->ld, *packed = factors + factors_room(p);
    of_keys.n = of_values.sizes[2] = keys;
    if (p->kernel)
        multiply(&of_keys, q, d->q_strides[2], k, packed, scores, p->ld, rows);
    else
        DYCL_TRY(dycl_sgemm(0, 1, rows, keys, d->width, 1, q, d->q_strides[2], k, d->k_strides[2], 0, scores, p->ld));
    unsigned state = flush_subnormals();
    dycl_scores x = {.x = scores,
                     .ld = p->ld,
                     .rows = rows,
                     .n = keys,
                     .seen = d->causal ? first + 1 : 0,
                     .scale = d->scale,
                     .factors = factors};
    int64_t of_mask = batch * d->mask_strides[0] + head * d->mask_strides[1] + first * d->mask_strides[2];
    if (d->mask == 1 && d->mask_strides[3] == 1) {
        x.mask = (const float *)mask + of_mask;
        x.mask_row = d->mask_strides[2];
    } else if (d->mask) {
        for (int64_t i = 0; i < rows; i++)
            scale_and_mask(d, scores + i * p->ld, mask, of_mask + i * d->mask_strides[2],
                           d->causal ? least(keys, first + i + 1) : keys);
        x.scale = 1;
    }
    table->exponentials(&x);
    restore_subnormals(state);
    if (p->kernel)
        multiply(&of_values, scores, p->ld, v, packed, out, d->o_strides[2], rows);
    else
        DYCL_TRY(
            dycl_sgemm(0, 0, rows, d->v_width, keys, 1, scores, p->ld, v, d->v_strides[2], 0, out, d->o_strides[2]));
    if (!table->scale(out, d->o_strides[2], rows, d->v_width, factors) || !hides_only_numbers(p, unit, q, rows, k, v))
        status = UNUSUAL;
fail:
    return status;
}

static dycl_status check(const dycl_attention_desc *d) {
    if (d->kv_heads < 1 || d->heads % d->kv_heads)
        return dycl_error_bail("attention with %d heads on %d", (int)d->heads, (int)d->kv_heads);
    if (d->q_strides[3] != 1 || d->k_strides[3] != 1 || d->v_strides[3] != 1 || d->o_strides[3] != 1) {
        if (d->width > 1 || d->v_width > 1) return dycl_error_bail("attention on operands whose last stride is not 1");
    }
    /* sgemm refuses rows that overlap. */
    if ((d->q_len > 1 && (d->q_strides[2] < d->width || d->o_strides[2] < d->v_width)) ||
        (d->k_len > 1 && (d->k_strides[2] < d->width || d->v_strides[2] < d->v_width)))
        return dycl_error_bail("attention on overlapping rows");
    return DYCL_OK;
}

static dycl_status outcome(dycl_status status) {
    if (status == DYCL_ERROR) return dycl_error_set("sgemm failed inside attention");
    return status == UNUSUAL
               ? dycl_error_bail("attention with infinities or NaN, which torch's kernel treats in its own way")
               : DYCL_OK;
}

dycl_status dycl_attention(const dycl_attention_desc *desc, const float *q, const float *k, const float *v,
                           const void *mask, float *out, void *scratch) {
    const dycl_scores_table *table = dycl_kern_scores(dycl_cpu_isa());
    dycl_status status = check(desc);
    atomic_int worst = DYCL_OK;
    plan p;
    if (status != DYCL_OK) return status;
    make_plan(desc, &p);
    int64_t units = p.d.batch * p.d.heads * p.tiles;
    if (units == 0 || p.d.v_width == 0) return DYCL_OK;
    double flops = 2.0 * (double)(units * p.rows) * (double)p.d.k_len * (double)(p.d.width + p.d.v_width);
    int threads = (int)least(p.threads, dycl_cpu_threads());
    if (threads < 2 ||
        flops <= SERIAL_FLOPS) { /* no region of one thread: sgemm's own team would be made anew inside */
        for (int64_t unit = 0; unit < units && status == DYCL_OK; unit++)
            status = run_tile(&p, table, unit, q, k, v, mask, out, scratch);
        return outcome(status);
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t unit = 0; unit < units; unit++) {
        float *scores = (float *)((char *)scratch + (size_t)omp_get_thread_num() * p.tile_bytes);
        dycl_status s = run_tile(&p, table, unit, q, k, v, mask, out, scores);
        if (s != DYCL_OK) atomic_store_explicit(&worst, (int)s, memory_order_relaxed);
    }
    return outcome((dycl_status)atomic_load(&worst));
}
