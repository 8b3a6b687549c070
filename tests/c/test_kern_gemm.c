/* The packed product against sums in f64: every ISA, panel width, number of threads; rows in runs and segments as a
 * convolution has them, B in any order, bias, scale, residual, clamp, NaN and infinities. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/gemm.h"
#include "random.h"

static int failures;

static float *floats(int64_t count) {
    float *x = dycl_alloc((size_t)(count + 1) * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)below(2001) / 1000 - 1;
    return x;
}

static int64_t up_to(int most) { return 1 + (int64_t)below(most); }

/* Where row i of C begins. */
static int64_t row_of(const dycl_gemm_rows *r, int64_t i) {
    if (!r->c_run) return i * r->c_row;
    return i / r->run / r->run_inner * r->c_outer + i / r->run % r->run_inner * r->c_run + i % r->run * r->c_row;
}

static void check(dycl_isa isa, int most) {
    const dycl_gemm_kernel *kernel = dycl_kern_gemm(isa);
    dycl_gemm_layout form = {.kernel = kernel, .n = up_to(most)};
    dycl_gemm_rows rows = {.run = up_to(below(3) ? 20 : most), .run_inner = up_to(4)};
    rows.runs = below(2) ? 1 : up_to(9);
    /* B: its three dimensions of k and its columns in a random order */
    int order[4] = {0, 1, 2, 3};
    int64_t sizes[4] = {up_to(3), up_to(3), up_to(below(4) ? 40 : 1200), form.n}, strides[4], next = 1;
    for (int i = 3; i > 0; i--) {
        int j = (int)below(i + 1), t = order[i];
        order[i] = order[j], order[j] = t;
    }
    for (int i = 0; i < 4; i++) strides[order[i]] = next, next *= sizes[order[i]];
    memcpy(form.sizes, sizes, sizeof form.sizes);
    memcpy(form.strides, strides, sizeof form.strides);
    form.column = strides[3];
    do form.vectors = up_to(DYCL_GEMM_VECTORS);
    while (!kernel->rows[form.vectors]);
    float *b = floats(next), *scale = below(2) ? floats(form.n) : NULL, *bias = below(2) ? floats(form.n) : NULL;
    /* A: a segment covers the inner two or one of the dimensions of k */
    int64_t depth = form.sizes[1] * form.sizes[2], k = form.sizes[0] * depth, m = rows.runs * rows.run;
    rows.segment_count = form.sizes[0];
    rows.depth = depth;
    int64_t a_row = up_to((int)depth + 5), segment = up_to((int)depth * 2), run = up_to(500), outer = up_to(500);
    int64_t extent = (rows.run - 1) * a_row + (rows.segment_count - 1) * segment + depth + rows.runs * (run + outer);
    float *a = floats(extent), low = -INFINITY, high = INFINITY;
    if (below(2)) low = -0.5f;
    if (below(2)) high = 1.5f;
    if (below(4) == 0) a[below((int)extent)] = NAN;
    if (below(8) == 0) b[below((int)next)] = INFINITY;
    rows.a = (const char *)a;
    rows.a_row = a_row * 4, rows.segment_stride = segment * 4, rows.run_stride = run * 4,
    rows.run_outer_stride = outer * 4;
    rows.unique = below(2) ? depth * 4 : 100000;
    rows.c_row = form.n + below(5);
    if (below(2)) rows.c_run = rows.run * rows.c_row + below(9), rows.c_outer = rows.run_inner * rows.c_run + below(9);
    int64_t extent_c = row_of(&rows, m - 1) + rows.c_row;
    rows.c = floats(extent_c);
    float *before = dycl_alloc((size_t)(extent_c + 1) * sizeof *before), *residual = below(2) ? floats(extent_c) : NULL;
    memcpy(before, rows.c, (size_t)extent_c * sizeof *before);
    int threads = (int)up_to(4);
    size_t bytes = dycl_gemm_bytes(&form), fresh = dycl_gemm_fresh_bytes(&form, threads);
    char *packed = dycl_aligned_alloc(bytes > fresh ? bytes : fresh);
    dycl_gemm_finish finish = {bias, residual, low, high};
    if (below(3)) {
        dycl_gemm_pack(&form, b, scale, (float *)packed, (int)up_to(3));
        dycl_gemm_run(&form, &rows, (float *)packed, &finish, threads);
    } else {
        dycl_gemm_run_fresh(&form, &rows, &(dycl_gemm_columns){b, scale, packed}, &finish, threads);
    }
    double *column = dycl_alloc((size_t)(k + 1) * sizeof *column);
    for (int64_t j = 0; j < rows.c_row; j++) {
        for (int64_t p = 0; p < k && j < form.n; p++) {
            int64_t rest = p % depth, d1 = rest / form.sizes[2], d2 = rest % form.sizes[2];
            float weight =
                b[p / depth * form.strides[0] + d1 * form.strides[1] + d2 * form.strides[2] + j * form.column];
            column[p] = scale ? weight * scale[j] : weight;
        }
        for (int64_t i = 0; i < m; i++) {
            int64_t at = row_of(&rows, i) + j;
            float got = rows.c[at];
            if (j >= form.n) { /* between the rows nothing is written */
                if (memcmp(&got, &before[at], sizeof got) && failures++ < 20) printf("FAIL written beside a row\n");
                continue;
            }
            const float *row =
                a + i / rows.run / rows.run_inner * outer + i / rows.run % rows.run_inner * run + i % rows.run * a_row;
            double sum = bias ? bias[j] : 0, size = fabs(sum);
            for (int64_t s = 0, p = 0; s < rows.segment_count; s++)
                for (int64_t rest = 0; rest < depth; rest++, p++) {
                    double x = (double)row[s * segment + rest] * column[p];
                    sum += x, size += fabs(x);
                }
            if (residual) sum += residual[at];
            if (sum < low) sum = low;
            if (sum > high) sum = high;
            /* each sum of n terms: at most n roundings of half an ulp of the sum of magnitudes; it is far less on
             * average */
            double allowed = (size + 1) * 6e-8 * (4 + sqrt((double)k)) + 1e-6;
            int ok = isnan(sum) ? isnan(got) : isinf(sum) || isinf(got) ? sum == got : fabs(sum - got) <= allowed;
            if (!ok && failures++ < 20)
                printf("FAIL %s m %lld n %lld k %lld vectors %lld: %g instead of %g\n", dycl_isa_name(isa),
                       (long long)m, (long long)form.n, (long long)k, (long long)form.vectors, (double)got, sum);
        }
    }
    dycl_free(column);
    dycl_free(a), dycl_free(b), dycl_free(scale), dycl_free(bias), dycl_free(before), dycl_free(residual),
        dycl_free(rows.c);
    dycl_aligned_free(packed);
}

/* The copy with zeros, in parts, against its definition. */
static void check_pad(void) {
    dycl_pad p = {up_to(3), up_to(40), up_to(20), up_to(40), below(3), below(3), below(3), below(3)};
    int64_t height = p.height + p.above + p.below, width = p.width + p.left + p.right, lines = p.images * height,
            count = lines * width * p.channels;
    int64_t c = p.channels, h = p.height, w = p.width, last[4] = {h * w * c, 1, w * c, c},
            first[4] = {c * h * w, h * w, w, 1};
    const int64_t *strides = below(2) ? last : first;
    float *src = floats(p.images * c * h * w), *dst = floats(count);
    int64_t cut = below(lines + 1);
    dycl_kern_pad(dst, src, strides, &p, cut, lines);
    dycl_kern_pad(dst, src, strides, &p, 0, cut);
    for (int64_t i = 0; i < count; i++) {
        int64_t channel = i % c, x = i / c % width - p.left, y = i / c / width % height - p.above,
                image = i / c / width / height;
        int inside = x >= 0 && x < w && y >= 0 && y < h;
        float want = inside ? src[image * strides[0] + channel * strides[1] + y * strides[2] + x * strides[3]] : 0;
        if (dst[i] != want && failures++ < 20) printf("FAIL pad: %g instead of %g\n", (double)dst[i], (double)want);
    }
    dycl_free(src), dycl_free(dst);
}

int main(void) {
    for (int i = 0; i < 500; i++) check_pad();
    for (dycl_isa isa = DYCL_ISA_AVX2; isa < DYCL_ISA_COUNT; isa++) {
        if (!dycl_cpu_isa_force(isa)) continue;
        for (int i = 0; i < 1500; i++) check(isa, 130);
    }
    if (failures) printf("%d failures\n", failures);
    return failures != 0;
}
