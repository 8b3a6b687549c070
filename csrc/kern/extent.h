/* The per-ISA loop under dycl_kern_extent. Ownership: pointers are borrowed. Threads: pure functions. */
#ifndef DYCL_KERN_EXTENT_H
#define DYCL_KERN_EXTENT_H

#include "kern/isa.h"

#include <stddef.h>
#include <stdint.h>

/* *low and *high take in n elements. */
typedef void dycl_extent_fn(const int64_t *data, size_t n, int64_t *low, int64_t *high);
DYCL_ISA_TABLES(dycl_extent_fn, dycl_kern_extent)

#endif
