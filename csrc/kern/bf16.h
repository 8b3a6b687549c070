/* Products with few rows over weights in bfloat16: C[m, n] = A[m, k] B[k, n] + bias[n], where reading B is what takes
 * the time. A stays float32 and sums are float32: only B is rounded.
 *
 * B is packed once: panels of DYCL_BF16_PANEL columns (the last one a multiple of 16), each pair of rows after the
 * other, the two of a column in one word.
 *
 * Ownership: none. Threads: pure; packing and rounding use OpenMP inside. AVX-512 only (dycl_cpu_bf16). */
#ifndef DYCL_KERN_BF16_H
#define DYCL_KERN_BF16_H

#include <stddef.h>
#include <stdint.h>

#include "base/half.h"

#define DYCL_BF16_PANEL 64

typedef struct {
    int64_t n, k, row, column; /* n 0: not this form. Strides of B in elements */
    int64_t rounded;           /* 1: B is in bfloat16 already, else float32 */
} dycl_bf16_layout;

size_t dycl_bf16_bytes(const dycl_bf16_layout *form);
void dycl_bf16_pack(const dycl_bf16_layout *form, const void *b, uint16_t *packed, int threads);

/* Rows of `columns` floats, `stride` apart, rounded to rows one after the other. */
void dycl_bf16_round(uint16_t *to, const float *from, int64_t rows, int64_t columns, int64_t stride,
                     int64_t column_stride, int threads);

/* Where the columns of the nth of so many parts begin, whole panels each; of the one behind the last: n. */
static inline int64_t dycl_bf16_part(int64_t n, int64_t nth, int64_t parts) {
    int64_t panels = (n + DYCL_BF16_PANEL - 1) / DYCL_BF16_PANEL, first = panels * nth / parts * DYCL_BF16_PANEL;
    return first < n ? first : n;
}
/* The panel that begins with this column. */
static inline const uint16_t *dycl_bf16_panel(const uint16_t *packed, int64_t column, int64_t k) {
    return packed + column * ((k + 1) / 2) * 2;
}

/* n: columns from the first panel that `packed` points to. bias: or NULL */
void dycl_bf16_rows__avx512(float *c, int64_t ldc, const float *a, int64_t lda, const uint16_t *packed,
                            const float *bias, int64_t m, int64_t n, int64_t k);
void dycl_bf16_round__avx512(uint16_t *to, const float *from, int64_t count);

#endif
