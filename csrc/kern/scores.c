#include "kern/scores.h"

DYCL_ISA_CHOICE(const dycl_scores_table, dycl_scores)
const dycl_scores_table *dycl_kern_scores(dycl_isa isa) { return dycl_scores_for(isa); }
