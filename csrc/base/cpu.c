#define _POSIX_C_SOURCE 200809L
#include "base/cpu.h"

#include "base/env.h"

#include <omp.h>
#include <stdatomic.h>
#include <unistd.h>

#define NAME_OF(x, y, NAME, name, ...) [DYCL_ISA_##NAME] = #name,
static const char *const names[DYCL_ISA_COUNT] = {DYCL_ISA_ROWS(NAME_OF, , )};
static atomic_int current = -1; /* kernels of several threads ask for it first */

#if defined(__x86_64__)
#define DYCL_HAS(feature) __builtin_cpu_supports(feature)
#else
#define DYCL_HAS(feature) 0
#endif
#define NEEDS_OF(x, y, NAME, name, needs, ...)                                                                         \
    case DYCL_ISA_##NAME: return needs;

static int has(int isa) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    switch (isa) {
        DYCL_ISA_ROWS(NEEDS_OF, , )
    default: return 0;
    }
}

dycl_isa dycl_cpu_isa(void) {
    int isa = atomic_load_explicit(&current, memory_order_relaxed);
    if (isa < 0) {
        int best = DYCL_ISA_COUNT - 1, nobody = -1;
        while (!has(best)) best--;
        isa = dycl_env_choice("DYCL_ISA", names, DYCL_ISA_COUNT);
        if (isa >= 0 && !has(isa))
            dycl_env_complain("DYCL_ISA=%s is ignored: this processor has %s at best", names[isa], names[best]);
        if (!has(isa)) isa = best;
        if (!atomic_compare_exchange_strong(&current, &nobody, isa)) isa = nobody;
    }
    return (dycl_isa)isa;
}

int dycl_cpu_isa_force(dycl_isa isa) {
    if (!has((int)isa)) return 0;
    atomic_store(&current, (int)isa);
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
