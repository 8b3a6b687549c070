#include "kern/extent.h"
#include "kern/kern.h"

DYCL_ISA_CHOICE(dycl_extent_fn, dycl_kern_extent)

void dycl_kern_extent(const int64_t *data, size_t n, int64_t *low, int64_t *high) {
    dycl_kern_extent_for(dycl_cpu_isa())(data, n, low, high);
}
