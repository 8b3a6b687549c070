/* Constants that a step may read as they lie or in another form that takes fewer bytes (kern/narrow.h, kern/screen.h),
 * whichever is measured to be faster: what stays in a cache is faster as it lies. Private to csrc/exec. Ownership: in
 * the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_BUILDER_FORM_H
#define DYCL_EXEC_BUILDER_FORM_H

#include "exec/builder/builder.h"
#include "kern/narrow.h"
#include "kern/screen.h"

typedef struct {
    dycl_packing *packing; /* NULL: there is nothing to choose */
    dycl_measure *measure;
    uint32_t uses; /* of the constant before the other form is made */
} dycl_form_choice;

enum { DYCL_FORM_AS_IT_LIES, DYCL_FORM_OTHER };

/* One run's choice. */
typedef struct {
    const void *packed; /* NULL: as it lies */
    int way;
    uint64_t began;
} dycl_form_run;

/* Offers the last step both ways for the weights, where they can be a constant and the CPU has a kernel. key: tells
 * apart what takes other times. */
dycl_status dycl_form_offer_narrow(dycl_maker *b, dycl_ref weights, const dycl_narrow_form *form, int threads,
                                   const char *key, dycl_form_choice *out);
dycl_status dycl_form_offer_screen(dycl_maker *b, dycl_ref weights, const dycl_screen_form *form, int threads,
                                   const char *key, dycl_form_choice *out);
dycl_status dycl_form_begin(const dycl_form_choice *choice, dycl_plan *plan, dycl_form_run *out);
void dycl_form_end(const dycl_form_choice *choice, const dycl_form_run *run); /* after a run that succeeded */

#endif
