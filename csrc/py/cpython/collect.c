#include "py/cpython/collect.h"

#include "py/cpython/compat.h"

static int held, enabled;

void dycl_collect_hold(void) {
    int was = PyGC_Disable();
    enabled = held++ ? enabled | was : was; /* the program may have enabled it meanwhile */
}

void dycl_collect_release(void) {
    if (--held == 0 && enabled) PyGC_Enable();
}
