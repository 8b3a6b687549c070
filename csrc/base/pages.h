/* Large blocks over huge pages: packed weights and workspaces.
 *
 * Weights of tens of megabytes are read from begin to end at each call. In pages of 4 KiB each of them is a TLB miss,
 * which prefetching does not hide; Linux gives huge pages to memory that asks for them (where transparent_hugepage is
 * `madvise`, the usual setting, or `always`). Blocks lie one behind the other in chunks of tens of megabytes, so that
 * hundreds of small weights share huge pages too. Where little is in use they are ordinary ones: a step of a small
 * model took 2 MiB for a workspace of 0.1.
 *
 * Ownership: a block is the caller's until dycl_pages_free; memory that no block needs goes back to the system.
 * Threads: any (one lock). */
#ifndef DYCL_BASE_PAGES_H
#define DYCL_BASE_PAGES_H

#include <stddef.h>

void *dycl_pages_get(size_t size); /* 64-byte aligned; NULL when out of memory */
void dycl_pages_free(void *block);
size_t dycl_pages_bytes(void); /* in use, small blocks excepted */

#endif
