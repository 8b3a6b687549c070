/* The allocator of the process: small blocks come from memory of their own, away from malloc's heap.
 *
 * Plans live long, tensors do not. Where both come from malloc, the plans that a program with ever new shapes makes pin
 * the heap between the tensors: a freed tensor's place is too small for the next, larger one. 7000 growing shapes
 * took 6.2 GB so, and 0.45 GB with this.
 *
 * Ownership: as base/alloc.h; memory once taken from the system is reused, never given back. Threads: any (one lock).
 */
#ifndef DYCL_BASE_HEAP_H
#define DYCL_BASE_HEAP_H

#include "base/alloc.h"

extern const dycl_allocator dycl_heap;

size_t dycl_heap_bytes(void); /* in use, but for aligned blocks; small blocks' overhead included */

#endif
