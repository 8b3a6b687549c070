/* The per-ISA block transpose under dycl_kern_copy. Ownership: pointers are borrowed. Threads: pure functions. */
#ifndef DYCL_KERN_TRANSPOSE_H
#define DYCL_KERN_TRANSPOSE_H

#include "kern/isa.h"

#include <stddef.h>
#include <stdint.h>

typedef uint32_t __attribute__((may_alias)) dycl_word; /* any 4-byte element */

/* dst[r * dst_stride + c] = src[c * src_stride + r] for r < rows, c < columns; elements of 4 bytes, strides in
 * elements. */
typedef void dycl_transpose4(dycl_word *dst, int64_t dst_stride, const dycl_word *src, int64_t src_stride, size_t rows,
                             size_t columns);
DYCL_ISA_TABLES(dycl_transpose4, dycl_kern_transpose4)
dycl_transpose4 *dycl_kern_transpose4(dycl_isa isa);

#endif
