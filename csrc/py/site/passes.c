#include "py/site/passes.h"

#include <stdio.h>

#include "base/alloc.h"
#include "py/site/site.h"

dycl_passes *dycl_passes_of(dycl_site *site) {
    if (!site->passes) {
        site->passes = dycl_alloc_zero(sizeof *site->passes);
        if (!site->passes) return NULL;
        site->passes->references = 1; /* the site's own */
    }
    site->passes->references++;
    return site->passes;
}

void dycl_passes_release(dycl_passes *passes) {
    if (passes && !--passes->references) dycl_free(passes);
}

void dycl_passes_ran(dycl_passes *passes) {
    if (passes) passes->done++;
}

void dycl_passes_replayed(dycl_passes *passes, int twice, const char *why) {
    if (!passes) return;
    passes->done++;
    passes->replayed++;
    passes->twice += twice != 0;
    if (!twice) snprintf(passes->why, sizeof passes->why, "%s", why);
}
