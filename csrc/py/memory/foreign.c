#include "py/memory/foreign.h"

#include "py/torch/abi.h"

/* The last exports are remembered by address: a storage that took the place of another costs a few more segments, never
 * a wrong result. */
#define EXPORTED 64
static uint64_t exported[EXPORTED];
static unsigned exported_count;

int dycl_foreign_is(const char *impl) {
    if (dycl_abi_storage_foreign(impl)) return 1;
    if (!exported_count) return 0;
    uint64_t storage = dycl_abi_storage(impl);
    for (unsigned i = 0; i < EXPORTED && i < exported_count; i++)
        if (exported[i] == storage) return 1;
    return 0;
}

void dycl_foreign_note(const char *impl) {
    if (!dycl_foreign_is(impl)) exported[exported_count++ % EXPORTED] = dycl_abi_storage(impl);
}
