/* Independent steps that run at the same time. Private to csrc/exec. Ownership: the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_BUILDER_GROUP_H
#define DYCL_EXEC_BUILDER_GROUP_H

#include "exec/builder/builder.h"

#define DYCL_GROUP_STEPS 8

typedef struct dycl_group {
    uint32_t count;
    dycl_step steps[DYCL_GROUP_STEPS];
    dycl_step_info infos[DYCL_GROUP_STEPS];
} dycl_group;

/* Joins neighbouring steps into groups. After all steps are built, before memory is planned (lifetimes keep the old
 * step numbers). */
dycl_status dycl_group_steps(dycl_maker *b);

#endif
