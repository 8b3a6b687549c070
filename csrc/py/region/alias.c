#include "py/region/alias.h"

#include "py/region/grow.h"

struct dycl_alias {
    uint32_t value;
    dycl_handle made; /* owned; NULL: not yet */
};

dycl_status dycl_alias_note(dycl_region *region, dycl_lazy *lazy) {
    DYCL_GROW(region->aliases, region->alias_room, region->alias_count + 1);
    region->aliases[region->alias_count++] = (struct dycl_alias){lazy->value, NULL};
    lazy->alias = region->alias_count;
    return DYCL_OK;
}

dycl_handle dycl_alias_tensor(dycl_region *region, const dycl_lazy *view, dycl_handle root) {
    struct dycl_alias *alias = &region->aliases[view->alias - 1];
    const dycl_value *value = &region->recorder.graph.values[alias->value];
    if (alias->made) return alias->made;
    if (value->root == alias->value) {
        alias->made = dycl_abi_detach(root);
    } else {
        int64_t offset = dycl_abi_storage_offset(root) + value->offset;
        dycl_handle part = dycl_abi_view(root, value->rank, value->sizes, value->strides, offset);
        alias->made = part ? dycl_abi_detach(part) : NULL;
        dycl_abi_delete(part);
    }
    if (!alias->made && !PyErr_Occurred()) PyErr_NoMemory();
    return alias->made;
}

void dycl_alias_bound(dycl_region *region, const dycl_lazy *lazy) {
    if (!lazy->alias || lazy->own != DYCL_OWN_ALIAS || !lazy->real) return;
    dycl_handle *made = &region->aliases[lazy->alias - 1].made;
    if (!*made) *made = dycl_abi_copy_handle(lazy->real); /* without memory views of it make one of their own */
}

void dycl_alias_forget(dycl_region *region) {
    for (uint32_t i = 0; i < region->alias_count; i++) dycl_abi_delete(region->aliases[i].made);
    region->alias_count = 0;
}
