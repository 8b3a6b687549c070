/* Products of which only the place of each row's largest element is wanted, as in greedy decoding (kern/prefilter.h).
 * Ownership: none. Threads: pure. */
#ifndef DYCL_OPT_PREFILTER_H
#define DYCL_OPT_PREFILTER_H

#include "ir/graph.h"

/* The node of the product that an argmax looks at, through copies and views that change nothing; DYCL_NONE: it is
 * another operator, or there is nothing to gain. */
uint32_t dycl_prefilter_product(const dycl_graph *graph, uint32_t argmax);

#endif
