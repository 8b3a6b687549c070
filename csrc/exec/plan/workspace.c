#include "exec/plan/workspace.h"

#include "base/alloc.h"

#include <stdatomic.h>

#define KEPT 4 /* as many runs at once find a block waiting */

static _Atomic(dycl_workspace *) pool[KEPT];

static void release(dycl_workspace *workspace) {
    if (!workspace) return;
    dycl_aligned_free(workspace->data);
    dycl_free(workspace);
}

dycl_workspace *dycl_workspace_take(size_t bytes) {
    dycl_workspace *found = NULL;
    for (int i = 0; i < KEPT && !found; i++)
        if (atomic_load_explicit(&pool[i], memory_order_relaxed)) found = atomic_exchange(&pool[i], NULL);
    if (found && found->bytes >= bytes) return found;
    release(found);
    /* some room above, so that shapes that grow step by step do not allocate at each step */
    size_t wanted = (bytes + bytes / 4 + 65535) & ~(size_t)65535;
    dycl_workspace *made = dycl_alloc(sizeof *made);
    void *data = dycl_aligned_alloc(wanted);
    if (!made || !data) {
        dycl_free(made);
        dycl_aligned_free(data);
        return NULL;
    }
    made->bytes = wanted;
    made->data = data;
    return made;
}

void dycl_workspace_give(dycl_workspace *workspace) {
    for (int i = 0; i < KEPT; i++) {
        dycl_workspace *empty = NULL;
        if (atomic_compare_exchange_strong(&pool[i], &empty, workspace)) return;
    }
    release(workspace);
}

void dycl_workspace_trim(void) {
    for (int i = 0; i < KEPT; i++) release(atomic_exchange(&pool[i], NULL));
}
