/* The parts of a trace: each begins with a product, a convolution or something as heavy, and goes as far as the next.
 * Programs with branches make new traces of parts that came before.
 *
 * Ownership: borrows graph and period; what it allocates is the caller's. Threads: any. */
#ifndef DYCL_OPT_PARTS_H
#define DYCL_OPT_PARTS_H

#include "opt/period.h"

typedef struct {
    uint64_t *looks;  /* owned: operators, attributes and shapes of the parts, each once */
    uint32_t *kinds;  /* behind them: of each part an index of `looks`, */
    uint32_t *starts; /* and its position in the period's `nodes`; the first is 0, and behind the last stands the end */
    uint32_t count, look_count; /* 0: it is no more than one part */
} dycl_parts;

dycl_status dycl_parts_find(const dycl_graph *graph, const dycl_period *period, dycl_parts *out);
/* Sets known[kind] where `other` has parts that look the same. */
void dycl_parts_mark_known(const dycl_parts *parts, const dycl_parts *other, uint8_t *known);
/* Whether the parts from `first` on, before `last`, look as those of another trace from `at` on. */
int dycl_parts_equal(const dycl_parts *parts, uint32_t first, uint32_t last, const dycl_parts *other, uint32_t at);
void dycl_parts_free(dycl_parts *parts);

#endif
