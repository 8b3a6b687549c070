/* The per-ISA tables behind dycl_kern_row. Ownership: immutable statics. Threads: pure functions. */
#ifndef DYCL_KERN_ROW_H
#define DYCL_KERN_ROW_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef struct {
    dycl_row_fn f32[DYCL_ROW_COUNT], f64[DYCL_ROW_COUNT];
} dycl_row_table;
DYCL_ISA_TABLES(const dycl_row_table, dycl_row_table)

#endif
