/* Where a field of another library's objects lies, found by objects whose fields are known: what these libraries do not
 * declare.
 *
 * Objects are blocks of malloc's, and no more of them is read than all have. Threads: any. */
#ifndef DYCL_BASE_PROBE_H
#define DYCL_BASE_PROBE_H

#include <stddef.h>
#include <stdint.h>

/* The one offset from `first` on, a multiple of 8 below `limit`, at which every object holds its expected word; -1 when
 * there is none or more than one. */
long dycl_probe_word(char *const *objects, const uint64_t *expected, int count, size_t first, size_t limit);

/* The one byte that is 1 in objects whose flag is set and 0 in all others, or -1. own: a pointer that each object
 * holds, to memory of its own. Bytes of pointers (these, and any that is the same in all objects with the flag) may
 * agree with the flags by chance and are not meant. */
long dycl_probe_flag(char *const *objects, const int *set, const uint64_t *own, int count, size_t first, size_t limit);

#endif
