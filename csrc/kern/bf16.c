#include "kern/bf16.h"

#define VECTOR 16

static int64_t width_of(const dycl_bf16_layout *form, int64_t j) {
    int64_t columns = form->n - j < DYCL_BF16_PANEL ? form->n - j : DYCL_BF16_PANEL;
    return (columns + VECTOR - 1) / VECTOR * VECTOR;
}

size_t dycl_bf16_bytes(const dycl_bf16_layout *form) {
    int64_t columns = (form->n + VECTOR - 1) / VECTOR * VECTOR;
    return (size_t)(columns * ((form->k + 1) / 2) * 2) * sizeof(uint16_t);
}

static uint16_t element(const dycl_bf16_layout *form, const void *b, int64_t p, int64_t j) {
    if (p >= form->k || j >= form->n) return 0;
    int64_t at = p * form->row + j * form->column;
    return form->rounded ? ((const uint16_t *)b)[at] : dycl_bf16_of(((const float *)b)[at]);
}

void dycl_bf16_pack(const dycl_bf16_layout *form, const void *b, uint16_t *packed, int threads) {
    int64_t panels = (form->n + DYCL_BF16_PANEL - 1) / DYCL_BF16_PANEL, pairs = (form->k + 1) / 2;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t panel = 0; panel < panels; panel++) {
        int64_t j0 = panel * DYCL_BF16_PANEL, width = width_of(form, j0);
        uint16_t *to = packed + j0 * pairs * 2;
        for (int64_t p = 0; p < pairs; p++)
            for (int64_t j = 0; j < width; j++)
                for (int half = 0; half < 2; half++) *to++ = element(form, b, 2 * p + half, j0 + j);
    }
}

void dycl_bf16_round(uint16_t *to, const float *from, int64_t rows, int64_t columns, int64_t stride,
                     int64_t column_stride, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        if (column_stride == 1)
            dycl_bf16_round__avx512(to + r * columns, from + r * stride, columns);
        else
            for (int64_t i = 0; i < columns; i++)
                to[r * columns + i] = dycl_bf16_of(from[r * stride + i * column_stride]);
    }
}
