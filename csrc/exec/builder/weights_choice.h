/* Constants that a step may read as they lie or in another form that takes fewer bytes (kern/narrow.h,
 * kern/prefilter.h), whichever is measured to be faster: what stays in a cache is faster as it lies. Private to
 * csrc/exec. Ownership: in the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_BUILDER_WEIGHTS_CHOICE_H
#define DYCL_EXEC_BUILDER_WEIGHTS_CHOICE_H

#include "exec/builder/builder.h"
#include "kern/narrow.h"
#include "kern/prefilter.h"

typedef struct {
    dycl_packing *packing; /* NULL: there is nothing to choose */
    dycl_autotune *autotune;
    uint32_t uses; /* of the constant before the other form is made */
} dycl_weights_choice;

enum { DYCL_WEIGHTS_AS_THEY_LIE, DYCL_WEIGHTS_PACKED };

/* One run's choice. */
typedef struct {
    const void *packed; /* NULL: as it lies */
    int variant;
    uint64_t began;
} dycl_weights_run;

/* Offers the last step both variants for the weights, where they can be a constant and the CPU has a kernel. key: tells
 * apart what takes other times. */
dycl_status dycl_weights_offer_narrow(dycl_builder *b, dycl_ref weights, const dycl_narrow_layout *form, int threads,
                                      const char *key, dycl_weights_choice *out);
dycl_status dycl_weights_offer_prefilter(dycl_builder *b, dycl_ref weights, const dycl_prefilter_layout *form,
                                         int threads, const char *key, dycl_weights_choice *out);
dycl_status dycl_weights_begin(const dycl_weights_choice *choice, dycl_plan *plan, dycl_weights_run *out);
void dycl_weights_end(const dycl_weights_choice *choice, const dycl_weights_run *run); /* after a run that succeeded */

#endif
