/* A check of drawn cases on each instruction set and number of threads. */
#ifndef DYCL_TESTS_EACH_ISA_H
#define DYCL_TESTS_EACH_ISA_H

#include <omp.h>
#include <stdio.h>

#include "base/cpu.h"

/* one: of the case i < cases. failures: what it counts */
static int on_each_isa(const char *what, void (*one)(int), int cases, const int *failures) {
    for (int isa = 0; isa < DYCL_ISA_COUNT; isa++) {
        int before = *failures;
        if (!dycl_cpu_isa_force((dycl_isa)isa)) continue;
        for (int threads = 1; threads < 4; threads++) {
            omp_set_num_threads(threads);
            for (int i = 0; i < cases; i++) one(i);
        }
        printf("%s %s: %s\n", dycl_isa_name((dycl_isa)isa), what, *failures == before ? "ok" : "FAILED");
    }
    return *failures != 0;
}

#endif
