#define _POSIX_C_SOURCE 200809L
#include "base/cpu.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[DYCL_ISA_COUNT] = {"scalar", "avx2", "avx512"};
static int current = -1;

static dycl_isa supported(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return DYCL_ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return DYCL_ISA_AVX2;
#endif
    return DYCL_ISA_SCALAR;
}

dycl_isa dycl_cpu_isa(void) {
    if (current < 0) {
        dycl_isa best = supported();
        const char *wanted = getenv("DYCL_ISA");
        for (int i = 0; wanted && i < (int)best; i++)
            if (!strcmp(wanted, names[i])) best = (dycl_isa)i;
        current = (int)best;
    }
    return (dycl_isa)current;
}

int dycl_cpu_isa_force(dycl_isa isa) {
    if (isa > supported()) return 0;
    current = (int)isa;
    return 1;
}

const char *dycl_isa_name(dycl_isa isa) { return names[isa]; }
int dycl_cpu_bf16(void) {
#if defined(__x86_64__)
    if (dycl_cpu_isa() != DYCL_ISA_AVX512) return 0;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return 0;
#endif
}

int dycl_cpu_threads(void) { return omp_get_max_threads(); }

int64_t dycl_cpu_cache(void) {
    static _Atomic int64_t known;
    if (!known) {
        long bytes = -1;
#ifdef _SC_LEVEL2_CACHE_SIZE
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
        known = bytes > 0 ? bytes : 512 * 1024;
    }
    return known;
}
