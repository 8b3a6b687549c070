/* The tables of elementwise kernels, one an ISA, that ew.c chooses from. Ownership: static data. Threads: immutable. */
#ifndef DYCL_KERN_EW_TABLE_H
#define DYCL_KERN_EW_TABLE_H

#include "kern/isa.h"
#include "kern/kern.h"

#define DYCL_EW_MASKS 7 /* of scalar operands: at most three operands, at least one of them a run */

typedef dycl_ew_fn dycl_ew_table[DYCL_EW_COUNT][DYCL_DTYPE_COUNT][DYCL_EW_MASKS];
typedef struct {
    dycl_ew_fn cast[DYCL_DTYPE_COUNT][DYCL_DTYPE_COUNT]; /* from, to */
    dycl_ew_fn round[DYCL_DTYPE_COUNT], finish[DYCL_DTYPE_COUNT];
} dycl_cast_table;

DYCL_ISA_TABLES(const dycl_ew_table, dycl_ew_table)
DYCL_ISA_TABLES(const dycl_cast_table, dycl_cast_table)

#endif
