/* Whether there is headroom: memory for what can also be left alone, as a second form of large weights.
 *
 * Ownership: none. Threads: any. */
#ifndef DYCL_BASE_HEADROOM_H
#define DYCL_BASE_HEADROOM_H

#include <stddef.h>

/* So many bytes more leave a quarter of the system's memory, and of the container's, to others. Reads files: 0.1 ms. */
int dycl_memory_headroom(size_t bytes);

#endif
