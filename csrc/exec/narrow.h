/* Constants that a step may read as they lie or in fewer bits (kern/narrow.h), whichever is measured to be faster: what stays in a cache is faster as
 * it lies. Private to csrc/exec. Ownership: in the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_NARROW_H
#define DYCL_EXEC_NARROW_H

#include "exec/builder.h"
#include "kern/narrow.h"

typedef struct {
    dycl_binding *binding; /* NULL: there is nothing to choose */
    dycl_measure *measure;
} dycl_narrow_choice;

/* One run's choice. */
typedef struct {
    const dycl_narrow_header *packed; /* NULL: as it lies */
    int way;
    uint64_t began;
} dycl_narrow_run;

/* Offers the last step both ways for `form` of the weights, where they can be a constant and the CPU has a kernel. key: tells apart what takes other
 * times. */
dycl_status dycl_narrow_offer(dycl_maker *b, dycl_ref weights, const dycl_narrow_form *form, int threads, const char *key, dycl_narrow_choice *out);
dycl_status dycl_narrow_begin(const dycl_narrow_choice *choice, dycl_plan *plan, dycl_narrow_run *out);
void dycl_narrow_end(const dycl_narrow_choice *choice, const dycl_narrow_run *run); /* after a run that succeeded */

#endif
