#include "check/zone.h"

#include "base/env.h"

#include <stdatomic.h>
#include <string.h>

#define PATTERN 0xa5

double dycl_check_work(void) {
    static _Atomic double most = -1;
    double known = atomic_load(&most);
    if (known >= 0) return known;
    double asked = dycl_env_amount("DYCL_CHECK");
#ifdef DYCL_DEBUG
    known = 2e6;
#else
    known = 0;
#endif
    if (asked >= 0) known = asked;
    if (known == 1) known = 1e8;
    atomic_store(&most, known);
    return known;
}

int dycl_check_enabled(void) { return dycl_check_work() > 0; }

void dycl_check_mark(void *zone) { memset(zone, PATTERN, DYCL_RED_ZONE); }

int dycl_check_untouched(const void *zone) {
    const unsigned char *p = zone;
    for (int i = 0; i < DYCL_RED_ZONE; i++)
        if (p[i] != PATTERN) return 0;
    return 1;
}
