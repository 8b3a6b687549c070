/* Independent steps that run at the same time. Private to csrc/exec. Ownership: the plan's arena. Threads: as steps. */
#ifndef DYCL_EXEC_BUILDER_GROUP_H
#define DYCL_EXEC_BUILDER_GROUP_H

#include "exec/builder/builder.h"

/* Joins neighbouring steps into groups. After all steps are built, before memory is planned (lifetimes keep the old
 * step numbers). */
dycl_status dycl_group_steps(dycl_builder *b);

#endif
