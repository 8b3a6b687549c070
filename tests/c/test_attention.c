/* dycl_attention against naive loops that accumulate in double: masks, causal, grouped heads, permuted operands. */
#include "base/alloc.h"
#include "dnnl/dnnl.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, checks;

static float *values(int64_t n) {
    float *p = dycl_aligned_alloc((size_t)(n + 1) * sizeof *p);
    for (int64_t i = 0; i <= n; i++) p[i] = rnd_float();
    return p;
}

static void expect(int ok, const char *what) {
    checks++;
    if (ok) return;
    if (failures++ < 20) printf("FAILED: %s (%s)\n", what, dycl_error_message());
}

/* [batch, heads, tokens, width] in that order of memory, or with tokens before heads as models keep it. */
static void set_strides(int64_t *s, int64_t heads, int64_t tokens, int64_t width, int tokens_first) {
    s[0] = heads * tokens * width;
    s[1] = tokens_first ? width : tokens * width;
    s[2] = tokens_first ? heads * width : width;
    s[3] = 1;
}

static void reference_row(const dycl_attention_desc *d, const float *q, const float *k, const float *v,
                          const void *mask, int64_t b, int64_t h, int64_t i, double *out) {
    int64_t g = h / (d->heads / d->kv_heads);
    double *p = malloc(sizeof *p * (size_t)(d->k_len + 1)), best = -INFINITY, sum = 0;
    int nan = 0, masked = d->mask || d->causal;
    for (int64_t j = 0; j < d->k_len; j++) {
        double s = 0;
        for (int64_t c = 0; c < d->width; c++)
            s += (double)q[b * d->q_strides[0] + h * d->q_strides[1] + i * d->q_strides[2] + c] *
                 k[b * d->k_strides[0] + g * d->k_strides[1] + j * d->k_strides[2] + c];
        s *= (double)d->scale;
        int64_t at = b * d->mask_strides[0] + h * d->mask_strides[1] + i * d->mask_strides[2] + j * d->mask_strides[3];
        if (d->mask == 1) s = (float)s + ((const float *)mask)[at];
        if (d->mask == 2 && !((const uint8_t *)mask)[at]) s = -INFINITY;
        if (d->causal && j > i) s = -INFINITY;
        p[j] = s;
        nan |= isnan(s);
        best = fmax(best, s);
    }
    for (int64_t c = 0; c < d->v_width; c++) out[c] = 0;
    if (nan || !masked || best > -INFINITY) {
        for (int64_t j = 0; j < d->k_len; j++) sum += p[j] = nan ? NAN : exp(p[j] - best);
        for (int64_t j = 0; j < d->k_len; j++)
            for (int64_t c = 0; c < d->v_width; c++)
                out[c] += p[j] / sum * v[b * d->v_strides[0] + g * d->v_strides[1] + j * d->v_strides[2] + c];
    }
    free(p);
}

/* expected: OK, or BAIL where numbers are not finite. */
static void run(const dycl_attention_desc *d, float *q, const float *k, const float *v, const void *mask,
                dycl_status expected, const char *what) {
    int64_t n = d->batch * d->heads * d->q_len * d->v_width;
    float *out = values(n), guard;
    size_t bytes = dycl_attention_scratch(d);
    char *scratch = dycl_aligned_alloc(bytes + 64);
    memset(scratch, 0xff, bytes + 64);
    guard = out[n];
    expect(dycl_attention(d, q, k, v, mask, out, scratch) == expected, what);
    expect(out[n] == guard, "nothing is written behind the result");
    for (size_t i = bytes; i < bytes + 64; i++)
        expect((unsigned char)scratch[i] == 0xff, "nothing is written behind the scratch memory");
    double *want = malloc(sizeof *want * (size_t)(d->v_width + 1));
    for (int64_t b = 0; b < d->batch && expected == DYCL_OK; b++)
        for (int64_t h = 0; h < d->heads; h++)
            for (int64_t i = 0; i < d->q_len; i++) {
                reference_row(d, q, k, v, mask, b, h, i, want);
                const float *got = out + b * d->o_strides[0] + h * d->o_strides[1] + i * d->o_strides[2];
                for (int64_t c = 0; c < d->v_width; c++)
                    expect(isnan(want[c]) ? isnan(got[c]) : fabs(got[c] - want[c]) <= 1e-5, what);
            }
    free(want);
    dycl_aligned_free(out);
    dycl_aligned_free(scratch);
}

static void random_case(int round) {
    dycl_attention_desc d = {0};
    d.batch = pick(1, 3);
    d.kv_heads = pick(1, 3);
    d.heads = d.kv_heads * pick(1, 3);
    int size = round % 4;
    d.q_len = size == 0 ? 1 : size == 3 ? pick(100, 300) : pick(1, 40);
    d.k_len = size == 3 ? pick(100, 300) : pick(1, 70);
    if (size == 1) d.k_len = d.q_len;
    d.width = pick(1, 70), d.v_width = pick(1, 70);
    if (size == 3) d.batch = 1, d.kv_heads = d.heads = 2;
    d.scale = 1 / sqrtf((float)d.width) * (round % 5 ? 1 : 8);
    d.causal = (int)pick(0, 1);
    d.mask = (int)pick(0, 2);
    set_strides(d.q_strides, d.heads, d.q_len, d.width, (int)pick(0, 1));
    set_strides(d.k_strides, d.kv_heads, d.k_len, d.width, (int)pick(0, 1));
    set_strides(d.v_strides, d.kv_heads, d.k_len, d.v_width, (int)pick(0, 1));
    set_strides(d.o_strides, d.heads, d.q_len, d.v_width, (int)pick(0, 1));
    int64_t sizes[4] = {d.batch, d.heads, d.q_len, d.k_len}, n = 1;
    for (int i = 3; i >= 0; i--) {
        int broadcast = !pick(0, 2);
        d.mask_strides[i] = broadcast ? 0 : n;
        if (!broadcast) n *= sizes[i];
    }
    float *q = values(d.batch * d.heads * d.q_len * d.width), *k = values(d.batch * d.kv_heads * d.k_len * d.width);
    float *v = values(d.batch * d.kv_heads * d.k_len * d.v_width), *mask = values(n);
    uint8_t *allowed = dycl_aligned_alloc((size_t)n);
    int rate = (int)pick(0, 3); /* 0: nearly every key masked, so that whole rows are */
    for (int64_t i = 0; i < n; i++) {
        allowed[i] = rate ? pick(0, rate) != 0 : !pick(0, d.k_len);
        if (!allowed[i] && rate != 2) mask[i] = rate == 1 ? -3.4028235e38f : -INFINITY;
    }
    if (round % 21 == 0) q[0] = NAN;
    if (round % 21 == 7) k[0] = INFINITY * (float)(2 * pick(0, 1) - 1), v[0] = NAN;
    if (round % 21 == 14)
        v[d.batch * d.kv_heads * d.k_len * d.v_width - 1] = NAN; /* perhaps hidden by the causal mask */
    run(&d, q, k, v,
        d.mask == 2 ? (void *)allowed
        : d.mask    ? (void *)mask
                    : NULL,
        round % 7 ? DYCL_OK : DYCL_BAIL, "attention");
    dycl_aligned_free(q), dycl_aligned_free(k), dycl_aligned_free(v), dycl_aligned_free(mask),
        dycl_aligned_free(allowed);
}

static void edges(void) {
    dycl_attention_desc d = {
        .batch = 1, .heads = 2, .kv_heads = 2, .q_len = 3, .k_len = 0, .width = 4, .v_width = 4, .scale = 0.5f};
    float q[64] = {0}, out[64], scratch[1024];
    set_strides(d.q_strides, 2, 3, 4, 0), set_strides(d.k_strides, 2, 0, 4, 0), set_strides(d.v_strides, 2, 0, 4, 0),
        set_strides(d.o_strides, 2, 3, 4, 0);
    memset(out, 0xff, sizeof out);
    expect(dycl_attention_scratch(&d) <= sizeof scratch, "scratch of nothing");
    expect(dycl_attention(&d, q, q, q, NULL, out, scratch) == DYCL_OK && out[0] == 0 && out[23] == 0,
           "no keys give zeros");
    d.q_len = 0;
    expect(dycl_attention(&d, q, q, q, NULL, out, scratch) == DYCL_OK, "no queries");
    d.q_len = 3, d.k_len = 3, d.k_strides[2] = 0;
    expect(dycl_attention(&d, q, q, q, NULL, out, scratch) == DYCL_BAIL, "expanded keys bail");
    d.kv_heads = 3;
    expect(dycl_attention(&d, q, q, q, NULL, out, scratch) == DYCL_BAIL, "heads that do not divide bail");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int round = 0; round < 200; round++) random_case(round);
    printf("attention: %d checks\n", checks);
    edges();
    printf("edges: done\n%s: %d checks, %d failures\n", failures ? "FAILED" : "ok", checks, failures);
    return failures != 0;
}
