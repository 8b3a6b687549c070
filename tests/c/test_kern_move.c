/* Data movement against element-by-element references: copy, gather_run, fill, take_rows, gather. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "kern/kern.h"
#include "random.h"

static int failures;

static void check(int ok, const char *what) {
    if (!ok && failures++ < 20) printf("FAIL %s\n", what);
}

/* Strides of a random dimension order, with room between rows now and then; returns the extent in elements. */
static int64_t make_strides(int64_t *strides, const int64_t *sizes, int rank, int may_broadcast, int shuffle) {
    int order[DYCL_MAX_RANK];
    int64_t next = 1, extent = 1;
    for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
    for (int i = rank - 1; i > 0 && shuffle; i--) {
        int j = (int)below(i + 1), t = order[i];
        order[i] = order[j], order[j] = t;
    }
    if (below(6) == 0) next = 1 + below(3);
    for (int i = 0; i < rank; i++) {
        int d = order[i];
        if (may_broadcast && below(5) == 0) {
            strides[d] = 0;
            continue;
        }
        strides[d] = next;
        if (sizes[d] > 0) extent += (sizes[d] - 1) * next, next *= sizes[d];
        if (below(6) == 0) next += below(4);
    }
    return extent;
}

static void check_copy(int64_t budget) {
    static const size_t elements[] = {1, 2, 4, 8};
    int rank = (int)below(DYCL_MAX_RANK + 1);
    size_t element = elements[below(4)];
    int64_t sizes[DYCL_MAX_RANK], ds[DYCL_MAX_RANK], ss[DYCL_MAX_RANK], total = 1;
    for (int i = 0; i < rank; i++) {
        int64_t most = total ? budget / total : 3;
        if (rank > 2 && most > 40) most = 40;
        sizes[i] = below(12) == 0 ? 1 : below(40) == 0 ? 0 : 1 + below(most > 1 ? most : 1);
        total *= sizes[i];
    }
    int64_t d_extent = make_strides(ds, sizes, rank, 0, below(2) == 0),
            s_extent = make_strides(ss, sizes, rank, 1, below(3) != 0);
    size_t d_bytes = (size_t)d_extent * element, s_bytes = (size_t)s_extent * element;
    unsigned char *dst = dycl_alloc(d_bytes), *expected = dycl_alloc(d_bytes), *src = dycl_alloc(s_bytes);
    unsigned char *first = src;
    for (size_t i = 0; i < s_bytes; i++) src[i] = (unsigned char)rnd();
    for (int i = 0; i < rank && total; i++) {
        if (below(4)) continue; /* walked backwards */
        first += (size_t)((sizes[i] - 1) * ss[i]) * element;
        ss[i] = -ss[i];
    }
    memset(dst, 0xa5, d_bytes), memset(expected, 0xa5, d_bytes);
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i, d = 0, s = 0;
        for (int k = rank - 1; k >= 0; k--)
            d += rest % sizes[k] * ds[k], s += rest % sizes[k] * ss[k], rest /= sizes[k];
        memcpy(expected + (size_t)d * element, first + s * (int64_t)element, element);
    }
    dycl_kern_copy(dst, ds, first, ss, sizes, rank, element);
    check(!memcmp(dst, expected, d_bytes), "copy");
    dycl_free(dst), dycl_free(expected), dycl_free(src);
}

static void check_transposes(void) {
    static const int64_t shapes[][2] = {{16, 16},  {64, 64},   {4, 4},   {17, 33},  {3, 1000},
                                        {1000, 3}, {300, 260}, {31, 15}, {128, 512}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (size_t element = 1; element <= 8; element *= 2) {
            int64_t r = shapes[k][0], c = shapes[k][1], sizes[2] = {r, c}, ds[2] = {c, 1}, ss[2] = {1, r};
            unsigned char *src = dycl_alloc((size_t)(r * c) * element), *dst = dycl_alloc((size_t)(r * c) * element);
            int ok = 1;
            for (size_t i = 0; i < (size_t)(r * c) * element; i++) src[i] = (unsigned char)rnd();
            dycl_kern_copy(dst, ds, src, ss, sizes, 2, element);
            for (int64_t i = 0; i < r; i++)
                for (int64_t j = 0; j < c; j++)
                    ok &= !memcmp(dst + (size_t)(i * c + j) * element, src + (size_t)(j * r + i) * element, element);
            check(ok, "transpose");
            dycl_free(src), dycl_free(dst);
        }
}

static void check_runs(void) {
    for (int round = 0; round < 400; round++) {
        size_t element = (size_t)1 << below(4), n = (size_t)below(200);
        int64_t stride = below(5);
        unsigned char src[200 * 5 * 8], dst[200 * 8 + 8];
        for (size_t i = 0; i < sizeof src; i++) src[i] = (unsigned char)rnd();
        memset(dst, 0x5a, sizeof dst);
        dycl_kern_gather_run(dst, src, stride, n, element);
        int ok = dst[n * element] == 0x5a;
        for (size_t i = 0; i < n; i++) ok &= !memcmp(dst + i * element, src + i * (size_t)stride * element, element);
        check(ok, "gather_run");
        memset(dst, 0x5a, sizeof dst);
        dycl_kern_fill(dst, src, n, element);
        ok = dst[n * element] == 0x5a;
        for (size_t i = 0; i < n; i++) ok &= !memcmp(dst + i * element, src, element);
        check(ok, "fill");
    }
    size_t n = 1000003;
    int32_t *big = dycl_alloc(n * 4), value = 123456789, ok = 1;
    dycl_kern_fill(big, &value, n, 4);
    for (size_t i = 0; i < n; i++) ok &= big[i] == value;
    check(ok, "fill, parallel");
    dycl_free(big);
}

static void check_take(void) {
    for (int round = 0; round < 300; round++) {
        static const size_t widths[] = {1, 4, 8, 12, 256, 3072};
        size_t row_bytes = widths[below(6)], n = (size_t)below(round % 10 ? 50 : 3000);
        int64_t rows = 1 + below(60), stride = (int64_t)row_bytes + (below(2) ? 0 : 16), bad = -1;
        int wide = (int)below(2);
        unsigned char *table = dycl_alloc((size_t)(rows * stride)), *out = dycl_alloc(n * row_bytes);
        int64_t *index64 = dycl_alloc(n * 8);
        int32_t *index32 = dycl_alloc(n * 4);
        for (int64_t i = 0; i < rows * stride; i++) table[i] = (unsigned char)rnd();
        for (size_t i = 0; i < n; i++) {
            index64[i] = below(rows);
            if (round % 3 == 0 && below(40) == 0) index64[i] = below(2) ? -1 : rows;
            index32[i] = (int32_t)index64[i];
            if (bad < 0 && (index64[i] < 0 || index64[i] >= rows)) bad = (int64_t)i;
        }
        int64_t got = dycl_kern_take_rows(out, table, rows, row_bytes, stride, wide ? (void *)index64 : (void *)index32,
                                          wide ? DYCL_I64 : DYCL_I32, n);
        check(got == bad, "take_rows: the first bad index");
        int ok = 1;
        for (size_t i = 0; bad < 0 && i < n; i++)
            ok &= !memcmp(out + i * row_bytes, table + index64[i] * stride, row_bytes);
        check(ok, "take_rows");
        dycl_free(table), dycl_free(out), dycl_free(index64), dycl_free(index32);
    }
}

static void check_gather(void) {
    for (int round = 0; round < 600; round++) {
        dycl_gather_desc d = {.rank = 1 + (int)below(4), .element = (size_t)1 << below(4), .limit = 1 + below(20)};
        int64_t count = 1, from_size = 1, index_size = 1, at[DYCL_MAX_RANK] = {0};
        const int expanded = (int)below(2);
        for (int i = d.rank - 1; i >= 0; i--) {
            d.sizes[i] = 1 + below(round % 50 ? 9 : 30);
            count *= d.sizes[i];
            d.index_strides[i] = expanded && below(2) ? 0 : index_size;
            index_size += d.index_strides[i] * (d.sizes[i] - 1);
            d.from_strides[i] = below(2) ? 0 : from_size;
            from_size += d.from_strides[i] * (d.sizes[i] - 1);
        }
        d.stride = below(2) ? 1 : from_size;
        from_size += d.stride * (d.limit - 1);
        unsigned char *from = dycl_alloc((size_t)from_size * d.element), *out = dycl_alloc((size_t)count * d.element);
        int64_t *index = dycl_alloc((size_t)index_size * 8);
        for (size_t i = 0; i < (size_t)from_size * d.element; i++) from[i] = (unsigned char)rnd();
        for (int64_t i = 0; i < index_size; i++) index[i] = below(d.limit);
        if (round % 3 == 0) index[below(index_size)] = below(2) ? -1 : d.limit;
        const int64_t *got = dycl_kern_gather(&d, out, from, index), *bad = NULL;
        int ok = 1;
        for (int64_t n = 0; n < count && !bad; n++) {
            int64_t f = 0, k = 0, rest = n;
            for (int i = d.rank - 1; i >= 0; i--) {
                at[i] = rest % d.sizes[i], rest /= d.sizes[i];
                f += at[i] * d.from_strides[i], k += at[i] * d.index_strides[i];
            }
            if (index[k] < 0 || index[k] >= d.limit)
                bad = index + k;
            else
                ok &= !memcmp(out + (size_t)n * d.element, from + (size_t)(f + index[k] * d.stride) * d.element,
                              d.element);
        }
        check(got == bad, "gather: the first bad index");
        check(ok || bad, "gather");
        dycl_free(from), dycl_free(out), dycl_free(index);
    }
}

static void check_extent(void) {
    int64_t data[300];
    for (int round = 0; round < 300; round++) {
        size_t n = (size_t)below(300);
        int64_t low = below(50) - 25, high = low + below(3), least = low, most = high;
        for (size_t i = 0; i < n; i++) {
            data[i] = (below(40) - 20) * (below(9) ? 1 : INT64_MAX / 20);
            least = data[i] < least ? data[i] : least;
            most = data[i] > most ? data[i] : most;
        }
        dycl_kern_extent(data, n, &low, &high);
        check(low == least && high == most, "extent");
    }
}

int main(void) {
    for (int isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        int before = failures;
        if (!dycl_cpu_isa_force((dycl_isa)isa)) continue;
        for (int i = 0; i < 3000; i++) check_copy(i % 50 ? 4000 : 300000);
        check_transposes();
        check_extent();
        printf("%s copy: %s\n", dycl_isa_name((dycl_isa)isa), failures == before ? "ok" : "FAILED");
    }
    int before = failures;
    check_runs();
    check_take();
    check_gather();
    printf("gather_run, fill, take_rows, gather: %s\n", failures == before ? "ok" : "FAILED");
    return failures != 0;
}
