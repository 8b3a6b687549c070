/* What the processor can do, and the ISA that the kernels use. Threads: set once, read by all. */
#ifndef DYCL_BASE_CPU_H
#define DYCL_BASE_CPU_H

#include "base/isa.def"

#include <stdint.h>

#define DYCL_ISA_NUMBER_(x, y, NAME, ...) DYCL_ISA_##NAME,
typedef enum { DYCL_ISA_ROWS(DYCL_ISA_NUMBER_, , ) DYCL_ISA_COUNT } dycl_isa;

dycl_isa dycl_cpu_isa(void);             /* the best that CPU and DYCL_ISA=<name> allow, or what was forced */
int dycl_cpu_isa_force(dycl_isa isa);    /* for tests; 0 when the CPU has it not */
const char *dycl_isa_name(dycl_isa isa); /* "avx2" */
int dycl_cpu_bf16(void);                 /* 1: products of bfloat16 (AVX512_BF16), and the ISA is AVX-512 */
int dycl_cpu_threads(void);              /* threads that a parallel loop may use now (OpenMP's, so torch's too) */
int64_t dycl_cpu_cache(void);            /* bytes of a core's second-level cache */

#endif
