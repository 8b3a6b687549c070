/* The per-ISA tables behind dycl_kern_row. Ownership: immutable statics. Threads: pure functions. */
#ifndef DYCL_KERN_ROW_H
#define DYCL_KERN_ROW_H

#include "kern/isa.h"
#include "kern/kern.h"

/* Rows of n elements that lie a step apart (in elements), `width` rows side by side. dst may equal src. */
typedef void (*dycl_row_columns_fn)(void *dst, int64_t dst_step, const void *src, int64_t src_step, size_t n,
                                    size_t width);

typedef struct {
    dycl_row_fn f32[DYCL_ROW_COUNT], f64[DYCL_ROW_COUNT];
    dycl_row_columns_fn columns[DYCL_ROW_COUNT][2]; /* f32, f64; NULL: none */
} dycl_row_table;
DYCL_ISA_TABLES(const dycl_row_table, dycl_row_table)

const dycl_row_table *dycl_row_table_of(dycl_isa isa);

#endif
