/* What feeds a run, and the constants among it.
 *
 * Ownership: the memory is the caller's. Threads: as said. */
#ifndef DYCL_EXEC_PACK_FEED_H
#define DYCL_EXEC_PACK_FEED_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    void *data;     /* first element of the feed (its storage offset already applied) */
    uint64_t token; /* identity of a constant (a parameter whose every write changes `version`); 0: may change at any
                       time, never packed */
    uint64_t version;
} dycl_feed;

/* Constants: forget what was packed from a token (the tensor died or its memory was exposed). Any thread. */
void dycl_pack_forget(uint64_t token);
size_t dycl_pack_bytes(void); /* memory held by packed weights */

#endif
