/* oneDNN behind csrc/dnnl against naive loops that accumulate in double. */
#include "base/alloc.h"
#include "dnnl/dnnl.h"
#include "random.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, checks;

static float *values(size_t n) {
    float *p = dycl_aligned_alloc((n + 16) * sizeof *p);
    for (size_t i = 0; i < n + 16; i++) p[i] = rnd_float();
    return p;
}

static void expect(int ok, const char *what) {
    checks++;
    if (ok) return;
    failures++;
    printf("FAILED: %s (%s)\n", what, dycl_error_message());
}
static void expect_close(double got, double want, double tolerance, const char *what) {
    int ok = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= tolerance * (1 + fabs(want));
    checks++;
    if (ok) return;
    if (failures++ < 20) printf("FAILED: %s: got %.9g, want %.9g\n", what, got, want);
}

/* ---- post-ops */
static double apply_post(const dycl_post_op *op, double x, double operand, double old) {
    switch (op->kind) {
    case DYCL_POST_RELU: return x < 0 ? 0 : x;
    case DYCL_POST_GELU: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case DYCL_POST_GELU_TANH: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case DYCL_POST_TANH: return tanh(x);
    case DYCL_POST_SIGMOID: return 1 / (1 + exp(-x));
    case DYCL_POST_SILU: return x / (1 + exp(-x));
    case DYCL_POST_CLAMP: return x < op->alpha ? op->alpha : x > op->beta ? op->beta : x;
    case DYCL_POST_HARDSWISH: return x * fmin(fmax(x + 3, 0), 6) / 6;
    case DYCL_POST_LEAKY_RELU: return x < 0 ? x * op->alpha : x;
    case DYCL_POST_ADD: return x + operand;
    case DYCL_POST_MUL: return x * operand;
    case DYCL_POST_SUB: return x - operand;
    case DYCL_POST_DIV: return x / operand;
    case DYCL_POST_MAX: return x > operand ? x : operand;
    case DYCL_POST_MIN: return x < operand ? x : operand;
    default: return x + old;
    }
}

/* A binary operand: a plain contiguous tensor whose size-1 dimensions are those set in mask. */
static void operand_layout(dycl_post_op *op, int rank, const int64_t *sizes, unsigned ones) {
    int64_t s[DYCL_DNNL_MAX_RANK], strides[DYCL_DNNL_MAX_RANK], step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        s[d] = ones >> d & 1 ? 1 : sizes[d];
        strides[d] = step;
        step *= s[d];
    }
    dycl_layout_plain(&op->operand, rank, s, strides);
}
static float operand_at(const dycl_layout *layout, const float *data, const int64_t *index) {
    int64_t at = 0;
    for (int d = 0; d < layout->rank; d++)
        if (layout->sizes[d] != 1) at += index[d] * layout->strides[d];
    return data[at];
}

/* ---- matmul: one random or given descriptor */
static int bails;
static void run_matmul(const dycl_matmul_desc *desc, const char *what) {
    int rank = desc->batch_rank + 2;
    int64_t sizes[6], batches = 1, need_a = 1, need_b = 1, need_c = 1;
    for (int d = 0; d < desc->batch_rank; d++) batches *= sizes[d] = desc->batch[d];
    sizes[rank - 2] = desc->m;
    sizes[rank - 1] = desc->n;
    for (int d = 0; d < rank; d++) {
        need_a += ((d == rank - 1 ? desc->k : sizes[d]) - 1) * desc->a_strides[d];
        need_b += ((d == rank - 2 ? desc->k : sizes[d]) - 1) * desc->b_strides[d];
        need_c += (sizes[d] - 1) * desc->c_strides[d];
    }
    float *a = values((size_t)need_a), *b = values((size_t)need_b), *bias = values((size_t)desc->n),
          *c = values((size_t)need_c);
    float *old = dycl_aligned_alloc((size_t)(need_c + 16) * sizeof *old), *operand[DYCL_MAX_POST_OPS] = {NULL};
    memcpy(old, c, (size_t)(need_c + 16) * sizeof *old);
    dycl_prim_args args = {a, b, bias, c, NULL, {NULL}};
    for (int i = 0; i < desc->post.count; i++) {
        if (desc->post.op[i].kind < DYCL_POST_ADD || desc->post.op[i].kind == DYCL_POST_SUM) continue;
        size_t n = dycl_layout_bytes(&desc->post.op[i].operand) / 4;
        operand[i] = values(n);
        for (size_t j = 0; j < n; j++)
            if (desc->post.op[i].kind == DYCL_POST_DIV)
                operand[i][j] = operand[i][j] < 0 ? operand[i][j] - 1 : operand[i][j] + 1;
        args.post[i] = operand[i];
    }
    dycl_prim *prim = NULL;
    void *packed = NULL, *scratch = NULL;
    dycl_status status = dycl_prim_matmul(desc, &prim);
    if (status == DYCL_BAIL) bails++;
    expect(status != DYCL_ERROR, what);
    if (status == DYCL_OK) {
        if (dycl_prim_weights_bytes(prim)) {
            packed = dycl_aligned_alloc(dycl_prim_weights_bytes(prim));
            expect(desc->pack_b && dycl_prim_weights_key(prim), "packed without being asked");
            expect(dycl_prim_pack(prim, b, packed) == DYCL_OK, "pack");
            args.weights = packed;
        }
        args.scratch = scratch = dycl_aligned_alloc(dycl_prim_scratch(prim));
        expect(dycl_prim_execute(prim, &args) == DYCL_OK, what);
        for (int64_t at = 0; at < batches; at++) {
            int64_t index[6], rest = at, oa = 0, ob = 0, oc = 0;
            for (int d = desc->batch_rank - 1; d >= 0; d--) {
                index[d] = rest % desc->batch[d];
                rest /= desc->batch[d];
                oa += index[d] * desc->a_strides[d];
                ob += index[d] * desc->b_strides[d];
                oc += index[d] * desc->c_strides[d];
            }
            for (int64_t i = 0; i < desc->m; i++)
                for (int64_t j = 0; j < desc->n; j++) {
                    double x = desc->bias ? bias[j] : 0;
                    for (int64_t k = 0; k < desc->k; k++)
                        x += (double)a[oa + i * desc->a_strides[rank - 2] + k * desc->a_strides[rank - 1]] *
                             b[ob + k * desc->b_strides[rank - 2] + j * desc->b_strides[rank - 1]];
                    int64_t to = oc + i * desc->c_strides[rank - 2] + j * desc->c_strides[rank - 1];
                    index[rank - 2] = i;
                    index[rank - 1] = j;
                    for (int p = 0; p < desc->post.count; p++)
                        x = apply_post(&desc->post.op[p], x,
                                       operand[p] ? operand_at(&desc->post.op[p].operand, operand[p], index) : 0,
                                       old[to]);
                    expect_close(c[to], x, 4e-6 + 1e-6 * (double)desc->k, what);
                }
        }
        dycl_prim_release(prim);
    }
    for (int i = 0; i < DYCL_MAX_POST_OPS; i++) dycl_aligned_free(operand[i]);
    dycl_aligned_free(a), dycl_aligned_free(b), dycl_aligned_free(bias), dycl_aligned_free(c), dycl_aligned_free(old);
    dycl_aligned_free(packed), dycl_aligned_free(scratch);
}

static void matmul_strides(dycl_matmul_desc *desc, int trans_a, int trans_b, int slack, unsigned broadcast_a,
                           unsigned broadcast_b) {
    int rank = desc->batch_rank + 2;
    int64_t lda = (trans_a ? desc->m : desc->k) + slack, ldb = (trans_b ? desc->k : desc->n) + slack,
            ldc = desc->n + slack;
    int64_t step_a = lda * (trans_a ? desc->k : desc->m), step_b = ldb * (trans_b ? desc->n : desc->k),
            step_c = ldc * desc->m;
    desc->a_strides[rank - 2] = trans_a ? 1 : lda;
    desc->a_strides[rank - 1] = trans_a ? lda : 1;
    desc->b_strides[rank - 2] = trans_b ? 1 : ldb;
    desc->b_strides[rank - 1] = trans_b ? ldb : 1;
    desc->c_strides[rank - 2] = ldc;
    desc->c_strides[rank - 1] = 1;
    for (int d = rank - 3; d >= 0; d--) {
        desc->a_strides[d] = broadcast_a >> d & 1 ? 0 : step_a;
        desc->b_strides[d] = broadcast_b >> d & 1 ? 0 : step_b;
        desc->c_strides[d] = step_c;
        if (desc->a_strides[d]) step_a *= desc->batch[d];
        if (desc->b_strides[d]) step_b *= desc->batch[d];
        step_c *= desc->batch[d];
    }
}

static void test_matmul(void) {
    for (int round = 0; round < 300; round++) {
        dycl_matmul_desc desc = {0};
        desc.batch_rank = round % 3 == 0 ? 0 : (int)pick(0, 4);
        for (int d = 0; d < desc.batch_rank; d++) desc.batch[d] = pick(1, 3);
        desc.m = pick(0, 3) ? pick(1, 20) : 1;
        desc.n = pick(0, 3) ? pick(1, 40) : 1;
        desc.k = pick(0, 3) ? pick(1, 70) : 1;
        desc.bias = (int)pick(0, 1);
        desc.pack_b = round % 3 == 0;
        unsigned broadcast = (unsigned)pick(0, 255); /* never both operands in one dimension: that bails */
        matmul_strides(&desc, (int)pick(0, 1), (int)pick(0, 1), (int)pick(0, 1) * 3, broadcast & 15,
                       broadcast >> 4 & ~broadcast);
        run_matmul(&desc, "matmul");
    }
    expect(bails == 0, "every plain matmul is served");
    dycl_matmul_desc empty = {0};
    dycl_prim *prim = NULL;
    empty.m = 0, empty.n = empty.k = 4;
    matmul_strides(&empty, 0, 0, 0, 0, 0);
    expect(dycl_prim_matmul(&empty, &prim) == DYCL_BAIL, "an empty matmul bails");
    printf("matmul: %d checks\n", checks);
}

static void test_matmul_post(void) {
    bails = 0;
    for (int kind = DYCL_POST_RELU; kind <= DYCL_POST_SUM; kind++)
        for (int form = 0; form < 8; form++) {
            dycl_matmul_desc desc = {0};
            desc.batch_rank = form & 1 ? 2 : 0;
            desc.batch[0] = 2, desc.batch[1] = 3;
            desc.m = pick(1, 17), desc.n = pick(2, 50), desc.k = pick(1, 30);
            desc.bias = form >> 1 & 1;
            desc.pack_b = form >> 2 & 1;
            matmul_strides(&desc, 0, (int)pick(0, 1), 0, 0, 0);
            int rank = desc.batch_rank + 2;
            int64_t sizes[6] = {2, 3, desc.m, desc.n};
            if (!desc.batch_rank) sizes[0] = desc.m, sizes[1] = desc.n;
            desc.post.count = 1;
            desc.post.op[0].kind = (dycl_post_kind)kind;
            desc.post.op[0].alpha = kind == DYCL_POST_CLAMP ? -0.5f : 0.2f;
            desc.post.op[0].beta = 0.75f;
            if (kind >= DYCL_POST_ADD && kind < DYCL_POST_SUM) {
                unsigned all = (1u << rank) - 1, last = 1u << (rank - 1);
                unsigned ones[4] = {0, all & ~last, all,
                                    all & ~(1u << (rank - 2))}; /* full, row vector, scalar, column vector */
                operand_layout(&desc.post.op[0], rank, sizes, ones[form >> 1]);
            }
            run_matmul(&desc, "matmul with a post-op");
        }
    for (int round = 0; round < 100; round++) { /* chains */
        dycl_matmul_desc desc = {0};
        desc.m = pick(1, 17), desc.n = pick(1, 50), desc.k = pick(1, 30), desc.bias = 1, desc.pack_b = 1;
        matmul_strides(&desc, 0, 1, 0, 0, 0);
        int64_t sizes[2] = {desc.m, desc.n};
        desc.post.count = (int)pick(2, 5);
        for (int i = 0; i < desc.post.count; i++) {
            dycl_post_op *op = &desc.post.op[i];
            op->kind = (dycl_post_kind)pick(i ? DYCL_POST_RELU : DYCL_POST_ADD, i ? DYCL_POST_MIN : DYCL_POST_SUM);
            op->alpha = op->kind == DYCL_POST_CLAMP ? -0.5f : 0.2f;
            op->beta = 0.75f;
            if (op->kind >= DYCL_POST_ADD && op->kind < DYCL_POST_SUM)
                operand_layout(op, 2, sizes, (unsigned)pick(0, 1));
        }
        run_matmul(&desc, "matmul with a chain of post-ops");
    }
    printf("matmul post-ops: %d checks so far, %d bailed\n", checks, bails);
}

/* ---- moving between plain NCHW and a primitive's layout, with the reorder primitive itself under test */
static float *to_layout(const float *nchw, const int64_t *sizes, const dycl_layout *layout, int back) {
    dycl_layout plain;
    int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
    dycl_layout_plain(&plain, 4, sizes, strides);
    float *out = dycl_aligned_alloc(dycl_layout_bytes(back ? &plain : layout) + 64);
    dycl_prim *prim = NULL;
    expect(dycl_prim_reorder(back ? layout : &plain, back ? &plain : layout, &prim) == DYCL_OK, "reorder");
    if (!prim) return out;
    void *scratch = dycl_aligned_alloc(dycl_prim_scratch(prim));
    dycl_prim_args args = {nchw, NULL, NULL, out, scratch, {NULL}};
    expect(dycl_prim_execute(prim, &args) == DYCL_OK, "reorder runs");
    dycl_aligned_free(scratch);
    dycl_prim_release(prim);
    return out;
}

static void conv_reference(const dycl_conv_desc *d, const float *x, const float *w, const float *bias, const float *old,
                           float *const *operand, double *out) {
    int64_t cg = d->c / d->groups, og = d->oc / d->groups, at = 0;
    for (int64_t n = 0; n < d->n; n++)
        for (int64_t o = 0; o < d->oc; o++)
            for (int64_t y = 0; y < d->oh; y++)
                for (int64_t z = 0; z < d->ow; z++, at++) {
                    double sum = d->bias ? bias[o] : 0;
                    for (int64_t c = 0; c < cg; c++)
                        for (int64_t i = 0; i < d->kh; i++)
                            for (int64_t j = 0; j < d->kw; j++) {
                                int64_t r = y * d->stride[0] - d->pad_before[0] + i * d->dilation[0];
                                int64_t s = z * d->stride[1] - d->pad_before[1] + j * d->dilation[1];
                                if (d->transposed) { /* the windows that this element of the result is in */
                                    r = y + d->pad_before[0] - i * d->dilation[0],
                                    s = z + d->pad_before[1] - j * d->dilation[1];
                                    if (r % d->stride[0] || s % d->stride[1]) continue;
                                    r /= d->stride[0], s /= d->stride[1];
                                }
                                if (r < 0 || s < 0 || r >= d->h || s >= d->w) continue;
                                if (d->transposed)
                                    sum += (double)x[((n * d->c + o / og * cg + c) * d->h + r) * d->w + s] *
                                           w[(((o / og * cg + c) * og + o % og) * d->kh + i) * d->kw + j];
                                else
                                    sum += (double)x[((n * d->c + o / og * cg + c) * d->h + r) * d->w + s] *
                                           w[((o * cg + c) * d->kh + i) * d->kw + j];
                            }
                    int64_t index[4] = {n, o, y, z};
                    for (int p = 0; p < d->post.count; p++) {
                        dycl_post_op op = d->post.op[p];
                        double value = 0;
                        if (operand[p] && op.operand.opaque == 2)
                            value = operand[p][at]; /* reference operands are kept as NCHW */
                        else if (operand[p])
                            value = operand_at(&op.operand, operand[p], index);
                        sum = apply_post(&op, sum, value, old[at]);
                    }
                    out[at] = sum;
                }
}

static void run_conv(const dycl_conv_desc *desc, const char *what) {
    int64_t xs[4] = {desc->n, desc->c, desc->h, desc->w}, ys[4] = {desc->n, desc->oc, desc->oh, desc->ow};
    size_t nx = (size_t)(xs[0] * xs[1] * xs[2] * xs[3]), ny = (size_t)(ys[0] * ys[1] * ys[2] * ys[3]);
    size_t nw = (size_t)(desc->oc * (desc->c / desc->groups) * desc->kh * desc->kw);
    dycl_prim *prim = NULL;
    dycl_status status = dycl_prim_conv(desc, &prim);
    expect(status != DYCL_ERROR, what);
    if (status != DYCL_OK) {
        bails++;
        return;
    }
    float *x = values(nx), *w = values(nw), *bias = values((size_t)desc->oc), *old = values(ny),
          *operand[DYCL_MAX_POST_OPS] = {NULL};
    double *want = malloc(ny * sizeof *want);
    dycl_layout src, dst;
    dycl_prim_src_layout(prim, &src);
    dycl_prim_dst_layout(prim, &dst);
    float *bx = to_layout(x, xs, &src, 0), *by = to_layout(old, ys, &dst, 0), *in_layout[DYCL_MAX_POST_OPS] = {NULL};
    void *packed = NULL, *scratch = dycl_aligned_alloc(dycl_prim_scratch(prim));
    dycl_prim_args args = {bx, w, bias, by, scratch, {NULL}};
    for (int i = 0; i < desc->post.count; i++) {
        const dycl_post_op *op = &desc->post.op[i];
        if (op->kind < DYCL_POST_ADD || op->kind == DYCL_POST_SUM) continue;
        operand[i] = values(op->operand.opaque == 2 ? ny : dycl_layout_bytes(&op->operand) / 4);
        args.post[i] = operand[i];
        if (op->operand.opaque == 2) args.post[i] = in_layout[i] = to_layout(operand[i], ys, &dst, 0);
    }
    if (dycl_prim_weights_bytes(prim)) {
        packed = dycl_aligned_alloc(dycl_prim_weights_bytes(prim));
        expect(dycl_prim_pack(prim, w, packed) == DYCL_OK, "pack");
        args.weights = packed;
    }
    expect(dycl_prim_execute(prim, &args) == DYCL_OK, what);
    float *y = to_layout(by, ys, &dst, 1);
    conv_reference(desc, x, w, bias, old, operand, want);
    double k = (double)(desc->c / desc->groups * desc->kh * desc->kw);
    for (size_t i = 0; i < ny; i++) expect_close(y[i], want[i], 4e-6 + 1e-6 * k * (desc->winograd ? 10 : 1), what);
    dycl_prim_release(prim);
    free(want);
    for (int i = 0; i < DYCL_MAX_POST_OPS; i++) dycl_aligned_free(operand[i]), dycl_aligned_free(in_layout[i]);
    dycl_aligned_free(x), dycl_aligned_free(w), dycl_aligned_free(bias), dycl_aligned_free(old), dycl_aligned_free(bx),
        dycl_aligned_free(by);
    dycl_aligned_free(y), dycl_aligned_free(packed), dycl_aligned_free(scratch);
}

static void plain_layout(dycl_layout *out, const int64_t *s, int channels_last) {
    int64_t first[4] = {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}, last[4] = {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]};
    dycl_layout_plain(out, 4, s, channels_last ? last : first);
}

static void random_conv(dycl_conv_desc *desc) {
    memset(desc, 0, sizeof *desc);
    desc->n = pick(1, 2);
    desc->groups = pick(0, 2) ? 1 : pick(2, 4);
    int depthwise = !pick(0, 3);
    desc->c = desc->groups * pick(1, 20);
    desc->oc = desc->groups * pick(1, 20);
    if (depthwise) desc->groups = desc->oc = desc->c;
    desc->kh = pick(1, 4), desc->kw = pick(1, 4);
    for (int d = 0; d < 2; d++) {
        int64_t k = d ? desc->kw : desc->kh;
        desc->stride[d] = pick(1, 2), desc->dilation[d] = pick(1, 2);
        desc->pad_before[d] = pick(0, k - 1), desc->pad_after[d] = pick(0, k - 1);
        int64_t reach = desc->dilation[d] * (k - 1) + 1, in = pick(reach, reach + 9);
        *(d ? &desc->w : &desc->h) = in;
        *(d ? &desc->ow : &desc->oh) = (in + desc->pad_before[d] + desc->pad_after[d] - reach) / desc->stride[d] + 1;
    }
    desc->bias = (int)pick(0, 1);
    int form = (int)pick(0, 2); /* any, NCHW, NHWC */
    int64_t xs[4] = {desc->n, desc->c, desc->h, desc->w}, ys[4] = {desc->n, desc->oc, desc->oh, desc->ow};
    desc->any_src = desc->any_dst = form == 0;
    plain_layout(&desc->src, xs, form == 2);
    plain_layout(&desc->dst, ys, form == 2);
}

static void test_conv(void) {
    dycl_conv_desc desc;
    int before = checks;
    bails = 0;
    for (int round = 0; round < 150; round++) {
        random_conv(&desc);
        run_conv(&desc, "convolution");
    }
    int plain_bails = bails;
    for (int round = 0; round < 150; round++) {
        random_conv(&desc);
        dycl_conv_desc d = desc;
        int64_t xs[4] = {d.n, d.oc, d.oh, d.ow}, ys[4] = {d.n, d.c, d.h, d.w};
        int form = (int)pick(0, 1);
        desc.transposed = 1;
        desc.c = d.oc, desc.h = d.oh, desc.w = d.ow, desc.oc = d.c, desc.oh = d.h, desc.ow = d.w;
        plain_layout(&desc.src, xs, form), plain_layout(&desc.dst, ys, form);
        run_conv(&desc, "transposed convolution");
    }
    int transposed_bails = bails - plain_bails;
    plain_bails = bails;
    for (int kind = DYCL_POST_RELU; kind <= DYCL_POST_SUM; kind++)
        for (int form = 0; form < 6; form++) {
            random_conv(&desc);
            int64_t ys[4] = {desc.n, desc.oc, desc.oh, desc.ow};
            desc.post.count = 2;
            desc.post.op[0].kind = (dycl_post_kind)kind;
            desc.post.op[0].alpha = kind == DYCL_POST_CLAMP ? -0.5f : 0.2f;
            desc.post.op[0].beta = 0.75f;
            desc.post.op[1].kind = form & 1 ? DYCL_POST_RELU : DYCL_POST_SUM;
            if (form & 1 && form > 2) desc.post.op[1].kind = DYCL_POST_ADD, desc.post.op[1].operand.opaque = 2;
            if (kind == DYCL_POST_DIV) desc.post.op[0].kind = DYCL_POST_MUL; /* operands near 0 */
            if (kind >= DYCL_POST_ADD && kind < DYCL_POST_SUM) {
                if (form % 3 == 0)
                    operand_layout(&desc.post.op[0], 4, ys, 13);
                else
                    desc.post.op[0].operand.opaque = 2;
            }
            if (kind == DYCL_POST_SUM) desc.post.op[1].kind = DYCL_POST_RELU;
            run_conv(&desc, "convolution with post-ops");
        }
    desc = (dycl_conv_desc){.n = 1,
                            .c = 32,
                            .h = 14,
                            .w = 14,
                            .oc = 32,
                            .kh = 3,
                            .kw = 3,
                            .oh = 14,
                            .ow = 14,
                            .stride = {1, 1},
                            .dilation = {1, 1},
                            .pad_before = {1, 1},
                            .pad_after = {1, 1},
                            .groups = 1,
                            .any_src = 1,
                            .any_dst = 1,
                            .winograd = 1};
    int wino = bails;
    run_conv(&desc, "Winograd");
    printf("convolution: %d checks, bailed: plain %d, transposed %d, with post-ops %d, Winograd %d\n", checks - before,
           plain_bails - transposed_bails, transposed_bails, wino - plain_bails, bails - wino);
}

/* ---- conv -> conv -> pool -> NCHW, blocked in between, as a plan would chain them */
static void test_pool_and_chain(void) {
    int before = checks;
    bails = 0;
    for (int round = 0; round < 60; round++) {
        dycl_conv_desc first = {.n = 2,
                                .c = 3,
                                .h = 12,
                                .w = 11,
                                .oc = pick(1, 40),
                                .kh = 3,
                                .kw = 3,
                                .oh = 12,
                                .ow = 11,
                                .stride = {1, 1},
                                .dilation = {1, 1},
                                .pad_before = {1, 1},
                                .pad_after = {1, 1},
                                .groups = 1,
                                .bias = 1,
                                .any_src = 1,
                                .any_dst = 1};
        first.post.count = 1;
        dycl_conv_desc second = first;
        second.c = first.oc;
        second.oc = pick(1, 40);
        dycl_prim *prim[3] = {NULL};
        dycl_layout in, middle, last, pooled;
        expect(dycl_prim_conv(&first, &prim[0]) == DYCL_OK, "first");
        dycl_prim_src_layout(prim[0], &in);
        dycl_prim_dst_layout(prim[0], &middle);
        second.any_src = 0, second.src = middle;
        /* From a source with fewer channels than a block oneDNN may have nothing: a plan would reorder then. */
        if (dycl_prim_conv(&second, &prim[1]) != DYCL_OK) {
            bails++;
            dycl_prim_release(prim[0]);
            continue;
        }
        dycl_prim_dst_layout(prim[1], &last);
        dycl_pool_desc pool = {.kind = (dycl_pool_kind)pick(0, 2),
                               .n = 2,
                               .c = second.oc,
                               .h = 12,
                               .w = 11,
                               .kernel = {3, 3},
                               .stride = {2, 2},
                               .dilation = {1, 1},
                               .pad_before = {1, 1},
                               .pad_after = {1, 1},
                               .src = last};
        if (!pick(0, 3)) pool.dilation[0] = pool.dilation[1] = 2;
        for (int d = 0; d < 2; d++) {
            int64_t n = ((d ? 11 : 12) + 2 - pool.dilation[d] * 2 - 1) / 2 + 1;
            *(d ? &pool.ow : &pool.oh) = n;
        }
        if (dycl_prim_pool(&pool, &prim[2]) != DYCL_OK) {
            expect(0, "pool");
            dycl_prim_release(prim[0]), dycl_prim_release(prim[1]);
            continue;
        }
        dycl_prim_dst_layout(prim[2], &pooled);
        int64_t xs[4] = {2, 3, 12, 11}, ys[4] = {2, second.oc, 12, 11}, ps[4] = {2, second.oc, pool.oh, pool.ow};
        expect(dycl_layout_padded(&middle) == (dycl_layout_bytes(&middle) != (size_t)(2 * first.oc * 132) * 4),
               "padding is told");
        float *x = values(2 * 3 * 132), *buffer[4] = {to_layout(x, xs, &in, 0)};
        dycl_layout *layouts[3] = {&middle, &last, &pooled};
        double *want = malloc(sizeof *want * (size_t)(2 * first.oc * 132)),
               *want2 = malloc(sizeof *want * (size_t)(2 * second.oc * 132));
        float *from = x, *steps[2] = {NULL};
        for (int i = 0; i < 3; i++) {
            const dycl_conv_desc *d = i ? &second : &first;
            buffer[i + 1] = dycl_aligned_alloc(dycl_layout_bytes(layouts[i]));
            memset(buffer[i + 1], 0xff, dycl_layout_bytes(layouts[i])); /* NaN: nothing may depend on what was there */
            float *w = values((size_t)(d->oc * d->c * 9)), *bias = values((size_t)d->oc);
            void *packed = dycl_aligned_alloc(dycl_prim_weights_bytes(prim[i])),
                 *scratch = dycl_aligned_alloc(dycl_prim_scratch(prim[i]));
            dycl_prim_args args = {buffer[i], w, bias, buffer[i + 1], scratch, {NULL}};
            if (dycl_prim_weights_bytes(prim[i])) {
                expect(dycl_prim_pack(prim[i], w, packed) == DYCL_OK, "pack");
                args.weights = packed;
            }
            expect(dycl_prim_execute(prim[i], &args) == DYCL_OK, "chain");
            if (i < 2) {
                float *none[DYCL_MAX_POST_OPS] = {NULL};
                size_t n = (size_t)(2 * d->oc * 132);
                steps[i] = values(n);
                conv_reference(d, from, w, bias, steps[i], none, i ? want2 : want);
                for (size_t j = 0; j < n; j++) steps[i][j] = (float)(i ? want2 : want)[j];
                from = steps[i];
            }
            dycl_aligned_free(w), dycl_aligned_free(bias), dycl_aligned_free(packed), dycl_aligned_free(scratch);
        }
        float *y = to_layout(buffer[2], ys, &last, 1), *p = to_layout(buffer[3], ps, &pooled, 1);
        double scale = 1e-6 * (double)(9 * (first.oc + 3)) * 3;
        for (int64_t i = 0; i < 2 * second.oc * 132; i++)
            expect_close(y[i], from[i], scale, "second convolution of the chain");
        for (int64_t plane = 0, at = 0; plane < 2 * second.oc; plane++)
            for (int64_t r = 0; r < pool.oh; r++)
                for (int64_t s = 0; s < pool.ow; s++, at++) {
                    double best = -INFINITY, sum = 0;
                    int count = 0;
                    for (int i = 0; i < 9; i++) {
                        int64_t a = r * 2 - 1 + i / 3 * pool.dilation[0], b = s * 2 - 1 + i % 3 * pool.dilation[1];
                        if (a < 0 || b < 0 || a >= 12 || b >= 11) continue;
                        double v = y[plane * 132 + a * 11 + b];
                        best = fmax(best, v), sum += v, count++;
                    }
                    double value =
                        pool.kind == DYCL_POOL_MAX ? best : sum / (pool.kind == DYCL_POOL_AVG_PADDED ? 9 : count);
                    expect_close(p[at], value, 1e-5, "pooling");
                }
        for (int i = 0; i < 4; i++) dycl_aligned_free(buffer[i]);
        for (int i = 0; i < 3; i++) dycl_prim_release(prim[i]);
        free(want), free(want2);
        dycl_aligned_free(x), dycl_aligned_free(y), dycl_aligned_free(p), dycl_aligned_free(steps[0]),
            dycl_aligned_free(steps[1]);
    }
    expect(bails < 40, "most chains are served");
    printf("conv-conv-pool-reorder: %d checks, %d of 60 chains bailed\n", checks - before, bails);
}

static void test_sgemm(void) {
    int before = checks;
    for (int round = 0; round < 100; round++) {
        int64_t m = pick(0, 20), n = pick(0, 20), k = pick(0, 30), slack = pick(0, 2);
        int ta = (int)pick(0, 1), tb = (int)pick(0, 1);
        int64_t lda = (ta ? m : k) + slack, ldb = (tb ? k : n) + slack, ldc = n + slack;
        float *a = values((size_t)(m * k + 32 * 33)), *b = values((size_t)(n * k + 32 * 33)),
              *c = values((size_t)(m * (n + 2) + 1)), beta = round % 2 ? 0.5f : 0;
        float *old = values((size_t)(m * (n + 2) + 1));
        memcpy(old, c, (size_t)(m * (n + 2) + 1) * 4);
        if (beta == 0) memset(c, 0xff, (size_t)(m * ldc) * 4);
        expect(dycl_sgemm(ta, tb, m, n, k, 2.0f, a, m == 1 && !ta ? 0 : lda, b, ldb, beta, c, ldc) == DYCL_OK, "sgemm");
        if (m == 1 && !ta) lda = k;
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double x = 0;
                for (int64_t l = 0; l < k; l++)
                    x += (double)a[ta ? l * lda + i : i * lda + l] * b[tb ? j * ldb + l : l * ldb + j];
                expect_close(c[i * ldc + j], 2 * x + (beta == 0 ? 0 : beta * old[i * ldc + j]), 1e-4, "sgemm");
            }
        dycl_aligned_free(a), dycl_aligned_free(b), dycl_aligned_free(c), dycl_aligned_free(old);
    }
    for (int form = 0; form < 4; form++) { /* large enough to be divided among threads */
        int64_t m = form == 3 ? 333 : 67, n = form == 3 ? 17 : 203, k = 155;
        int ta = form & 1, tb = form > 0;
        float *a = values((size_t)(m * k)), *b = values((size_t)(n * k)), *c = values((size_t)(m * n));
        expect(dycl_sgemm(ta, tb, m, n, k, 1, a, ta ? m : k, b, tb ? k : n, 0, c, n) == DYCL_OK, "large sgemm");
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double x = 0;
                for (int64_t l = 0; l < k; l++)
                    x += (double)a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
                expect_close(c[i * n + j], x, 1e-4, "large sgemm");
            }
        dycl_aligned_free(a), dycl_aligned_free(b), dycl_aligned_free(c);
    }
    printf("sgemm: %d checks\n", checks - before);
}

static void test_weights_key(void) {
    uint64_t keys[2][4];
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 4; i++) {
            dycl_matmul_desc desc = {0};
            dycl_prim *prim = NULL;
            desc.m = 40, desc.n = 96 + n, desc.k = 80, desc.pack_b = 1, desc.bias = i & 1;
            matmul_strides(&desc, 0, i < 3, 0, 0, 0);
            expect(dycl_prim_matmul(&desc, &prim) == DYCL_OK, "packed matmul");
            keys[n][i] = dycl_prim_weights_key(prim);
            dycl_prim_release(prim);
        }
    expect(keys[0][0] == keys[0][1] && keys[0][1] == keys[0][2],
           "packed weights are shared by matmuls that differ in the rest");
    expect(keys[0][0] != keys[1][0], "other sizes, other packed form");
    expect(keys[0][0] != keys[0][3] || keys[0][0] == 0, "from other strides, another key");
    printf("weights keys: done\n");
}

/* ---- the nth allocation fails */
static int allocations_left;
static void *failing_resize(void *context, void *block, size_t size) {
    (void)context;
    if (size == 0) {
        free(block);
        return NULL;
    }
    return allocations_left-- > 0 ? realloc(block, size) : NULL;
}
static void *failing_aligned(void *context, size_t size) {
    (void)context;
    return allocations_left-- > 0 ? aligned_alloc(64, (size + 63) & ~(size_t)63) : NULL;
}
static void failing_free(void *context, void *block) {
    (void)context;
    free(block);
}

static void test_out_of_memory(void) {
    static const dycl_allocator failing = {failing_resize, failing_aligned, failing_free, NULL};
    static float a[4], b[4], c[4], scratch[1 << 16];
    int succeeded = 0;
    for (int nth = 0; nth < 20 && !succeeded; nth++) {
        dycl_matmul_desc desc = {0};
        dycl_prim *prim = NULL;
        dycl_prim_args args = {a, b, NULL, c, scratch, {NULL}};
        desc.m = desc.n = desc.k = 2;
        matmul_strides(&desc, 0, 0, 0, 0, 0);
        dycl_dnnl_clear();
        allocations_left = nth;
        dycl_allocator_set(&failing);
        dycl_status status = dycl_prim_matmul(&desc, &prim);
        if (status == DYCL_OK) {
            status = dycl_prim_execute(prim, &args);
            dycl_prim_release(prim);
        }
        dycl_allocator_set(NULL);
        expect(status != DYCL_BAIL, "no memory is no reason to bail");
        succeeded = status == DYCL_OK;
    }
    expect(succeeded, "enough memory in the end");
    printf("out of memory: done\n");
}

/* ---- threads and the cache */
static void *thread_body(void *argument) {
    dycl_matmul_desc desc = {0};
    intptr_t wrong = 0;
    (void)argument;
    desc.m = 8, desc.n = desc.k = 64;
    matmul_strides(&desc, 0, 1, 0, 0, 0);
    float *a = dycl_aligned_alloc(8 * 64 * 4), *b = dycl_aligned_alloc(64 * 64 * 4),
          *c = dycl_aligned_alloc(8 * 64 * 4);
    for (int i = 0; i < 8 * 64; i++) a[i] = (float)(i % 7);
    for (int i = 0; i < 64 * 64; i++) b[i] = (float)(i % 5);
    for (int round = 0; round < 3000; round++) {
        dycl_prim *prim = NULL;
        if (round % 100 == 0) desc.m = 1 + round / 100 % 8;
        if (dycl_prim_matmul(&desc, &prim) != DYCL_OK) return (void *)1;
        void *scratch = dycl_aligned_alloc(dycl_prim_scratch(prim));
        dycl_prim_args args = {a, b, NULL, c, scratch, {NULL}};
        memset(c, 0xff, 8 * 64 * 4);
        wrong += dycl_prim_execute(prim, &args) != DYCL_OK;
        int64_t i = round % desc.m, j = round % 64;
        float want = 0;
        for (int64_t k = 0; k < 64; k++) want += a[i * 64 + k] * b[j * 64 + k];
        wrong += c[i * 64 + j] != want;
        dycl_aligned_free(scratch);
        dycl_prim_release(prim);
    }
    dycl_aligned_free(a), dycl_aligned_free(b), dycl_aligned_free(c);
    return (void *)wrong;
}

static void test_threads(void) {
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, thread_body, NULL);
    for (int i = 0; i < 2; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        expect(wrong == NULL, "two threads execute one primitive");
    }
    printf("threads: done\n");
}

static void test_cache(void) {
    dycl_dnnl_clear();
    dycl_matmul_desc desc = {0};
    dycl_prim *kept = NULL, *again = NULL, *prim = NULL;
    desc.m = desc.k = 2, desc.n = 3;
    matmul_strides(&desc, 0, 0, 0, 0, 0);
    expect(dycl_prim_matmul(&desc, &kept) == DYCL_OK && dycl_prim_matmul(&desc, &again) == DYCL_OK && kept == again,
           "equal descriptors share");
    dycl_prim_release(again);
    dycl_matmul_desc other = desc;
    other.a_strides[3] = 99; /* meaningless at this rank */
    expect(dycl_prim_matmul(&other, &again) == DYCL_OK && kept == again, "unused words do not count");
    dycl_prim_release(again);
    for (int i = 0; i < 1100; i++) {
        dycl_layout from, to;
        int64_t sizes[2] = {2, 3 + i}, rows[2] = {3 + i, 1}, columns[2] = {1, 2};
        dycl_layout_plain(&from, 2, sizes, rows);
        dycl_layout_plain(&to, 2, sizes, columns);
        if (dycl_prim_reorder(&from, &to, &prim) != DYCL_OK) {
            expect(0, "reorder");
            break;
        }
        dycl_prim_release(prim);
    }
    expect(dycl_dnnl_cached() == 1024, "the cache is bounded");
    float a[4] = {1, 2, 3, 4}, b[6] = {1, 0, 0, 0, 1, 0}, c[6];
    dycl_prim_args args = {a, b, NULL, c, dycl_aligned_alloc(dycl_prim_scratch(kept)), {NULL}};
    expect(dycl_prim_execute(kept, &args) == DYCL_OK && c[0] == 1 && c[1] == 2 && c[4] == 4,
           "an evicted primitive lives while it is held");
    dycl_aligned_free(args.scratch);
    expect(dycl_prim_matmul(&desc, &again) == DYCL_OK && again != kept, "it was evicted");
    dycl_prim_release(again);
    dycl_prim_release(kept);
    dycl_dnnl_clear();
    expect(dycl_dnnl_cached() == 0, "the cache can be emptied");
    printf("cache: done\n");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    expect(dycl_dnnl_init() == DYCL_OK, "init");
    printf("oneDNN %s\n", dycl_dnnl_version());
    test_matmul();
    test_matmul_post();
    test_conv();
    test_pool_and_chain();
    test_sgemm();
    test_weights_key();
    test_out_of_memory();
    test_threads();
    test_cache();
    printf("%s: %d checks, %d failures\n", failures ? "FAILED" : "ok", checks, failures);
    return failures != 0;
}
