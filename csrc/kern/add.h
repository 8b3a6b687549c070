/* The per-ISA loops under dycl_kern_add. Ownership: pointers are borrowed. Threads: pure functions. */
#ifndef DYCL_KERN_ADD_H
#define DYCL_KERN_ADD_H

#include "kern/isa.h"
#include "kern/kern.h"

typedef struct {
    /* Elements one after the other; the first index that is out of range, or NULL. */
    const int64_t *(*elements)(const dycl_add_desc *desc, void *to, const void *from, const int64_t *const *index);
    /* to = fill + b, where there is one number for all, else to += b */
    void (*row)(dycl_dtype dtype, void *to, const void *fill, const void *b, int64_t n);
} dycl_add_table;
DYCL_ISA_TABLES(const dycl_add_table, dycl_kern_add)

#endif
