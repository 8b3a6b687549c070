#include "kern/gemv.h"

DYCL_ISA_CHOICE(const dycl_gemv_table, dycl_gemv)
const dycl_gemv_table *dycl_kern_gemv(dycl_isa isa) { return dycl_gemv_for(isa); }
