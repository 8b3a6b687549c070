/* The products with few rows over one type of B. Before including: ELEMENT, LOAD(p), LOAD_PART(p, count) with zeros
 * behind, NAMED(function). Part of gemv_body.h. */
ALWAYS void NAMED(dots)(const dycl_gemv *g, int m, int streams, int fetches, int64_t column, int64_t apart,
                        const char **next) {
    const ELEMENT *b[STREAMS];
    vf sum[DYCL_GEMV_ROWS][STREAMS];
#pragma GCC unroll 8
    for (int s = 0; s < streams; s++) b[s] = (const ELEMENT *)g->b + (column + s * apart) * g->ldb;
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) sum[i][s] = (vf){0};
    int64_t p = 0;
    for (; p + vf_lanes <= g->k; p += vf_lanes) {
        vf x[DYCL_GEMV_ROWS];
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) x[i] = vf_load(g->a + i * g->lda + p);
        if (fetches) {
            __builtin_prefetch(*next, 0, 2);
            __builtin_prefetch(*next + 64, 0, 2);
            *next += g->next_step;
        }
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) {
            vf y = LOAD(b[s] + p);
#pragma GCC unroll 4
            for (int i = 0; i < m; i++) sum[i][s] = vf_fma(x[i], y, sum[i][s]);
        }
    }
    if (p < g->k) {
        size_t rest = (size_t)(g->k - p);
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) {
            vf y = LOAD_PART(b[s] + p, rest);
#pragma GCC unroll 4
            for (int i = 0; i < m; i++)
                sum[i][s] = vf_fma(vf_load_part(g->a + i * g->lda + p, rest, (vf){0}), y, sum[i][s]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) {
            int64_t at = column + s * apart;
            g->c[i * g->ldc + at] = (float)(vf_hsum(sum[i][s]) + (g->bias ? (double)g->bias[at] : 0));
        }
}

ALWAYS void NAMED(dot_of)(const dycl_gemv *g, int m, int streams, int fetches, int64_t from, int64_t end) {
    int64_t apart = (end - from) / streams;
    const char *next = g->next;
    for (int64_t j = 0; j < apart; j++) NAMED(dots)(g, m, streams, fetches, from + j, apart, &next);
    for (int64_t j = from + apart * streams; j < end; j++) NAMED(dots)(g, m, 1, 0, j, 0, &next);
}

static void NAMED(dot)(const dycl_gemv *g, int64_t from, int64_t end) {
    switch (g->m) {
    case 1: NAMED(dot_of)(g, 1, STREAMS, 0, from, end); break;
    case 2: NAMED(dot_of)(g, 2, STREAMS_2, 0, from, end); break;
    case 3: NAMED(dot_of)(g, 3, STREAMS_3, 0, from, end); break;
    default:
        if (g->next)
            NAMED(dot_of)(g, 4, STREAMS_4, 1, from, end);
        else
            NAMED(dot_of)(g, 4, STREAMS_4, 0, from, end);
    }
}

/* C += rows [p, p + streams) of B, each times its factor. */
ALWAYS void NAMED(axpys)(const dycl_gemv *g, int m, int streams, int64_t p, int64_t from, int64_t end) {
    const ELEMENT *b[STREAMS];
    float *c[DYCL_GEMV_ROWS];
    vf x[DYCL_GEMV_ROWS][STREAMS];
#pragma GCC unroll 8
    for (int s = 0; s < streams; s++) b[s] = (const ELEMENT *)g->b + (p + s) * g->ldb;
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        c[i] = g->c + i * g->ldc;
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) x[i][s] = vf_set(g->a[i * g->lda + p + s]);
    }
    int64_t j = from;
    for (; j + vf_lanes <= end; j += vf_lanes) {
        vf sum[DYCL_GEMV_ROWS];
#pragma GCC unroll 4
        for (int i = 0; i < m; i++)
            sum[i] = (vf){0}; /* C grows by sums of several terms: fewer roundings of large numbers */
#pragma GCC unroll 8
        for (int s = 0; s < streams; s++) {
            vf y = LOAD(b[s] + j);
#pragma GCC unroll 4
            for (int i = 0; i < m; i++) sum[i] = vf_fma(x[i][s], y, sum[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) vf_store(c[i] + j, vf_load(c[i] + j) + sum[i]);
    }
    if (j < end) {
        size_t rest = (size_t)(end - j);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            vf sum = {0};
#pragma GCC unroll 8
            for (int s = 0; s < streams; s++) sum = vf_fma(x[i][s], LOAD_PART(b[s] + j, rest), sum);
            vf_store_part(c[i] + j, rest, vf_load_part(c[i] + j, rest, (vf){0}) + sum);
        }
    }
}

ALWAYS void NAMED(axpy_of)(const dycl_gemv *g, int m, int streams, int64_t from, int64_t end) {
    for (int64_t left = 0; left < g->n; left += BLOCK / m) {
        int64_t right = g->n - left < BLOCK / m ? g->n : left + BLOCK / m, p = from;
        for (int i = 0; i < m; i++)
            for (int64_t j = left; j < right; j++) g->c[i * g->ldc + j] = 0;
        for (; p + streams <= end; p += streams) NAMED(axpys)(g, m, streams, p, left, right);
        for (; p < end; p++) NAMED(axpys)(g, m, 1, p, left, right);
        for (int i = 0; g->bias && i < m;
             i++) /* last: every partial sum would be rounded as coarsely as a large bias */
            for (int64_t j = left; j < right; j++) g->c[i * g->ldc + j] += g->bias[j];
    }
}

static void NAMED(axpy)(const dycl_gemv *g, int64_t from, int64_t end) {
    switch (g->m) {
    case 1: NAMED(axpy_of)(g, 1, STREAMS, from, end); break;
    case 2: NAMED(axpy_of)(g, 2, STREAMS_2, from, end); break;
    case 3: NAMED(axpy_of)(g, 3, STREAMS_3, from, end); break;
    default: NAMED(axpy_of)(g, 4, STREAMS_4, from, end);
    }
}

#undef ELEMENT
#undef LOAD
#undef LOAD_PART
#undef NAMED
