#include "exec/plan/workspace.h"

#include "base/alloc.h"

#include <stdatomic.h>

#define KEPT 4                 /* as many runs at once find a block waiting */
#define LOOK 256               /* so many runs of a block say how much is asked of it */
#define MUCH ((size_t)4 << 20) /* smaller blocks may stay as they are */
#define SOME ((size_t)1 << 20) /* or, behind a plan's first run, these */

static _Atomic(dycl_workspace *) pool[KEPT];

static void release(dycl_workspace *workspace) {
    if (!workspace) return;
    dycl_aligned_free(workspace->data);
    dycl_free(workspace);
}

dycl_workspace *dycl_workspace_take(size_t bytes, int first) {
    dycl_workspace *found = NULL;
    for (int i = 0; i < KEPT && !found; i++)
        if (atomic_load_explicit(&pool[i], memory_order_relaxed)) found = atomic_exchange(&pool[i], NULL);
    size_t most = found ? found->most : 0;
    if (!first && most < bytes) most = bytes;
    if (found && found->bytes >= bytes) {
        found->most = most;
        found->first = first;
        return found;
    }
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
    *made = (dycl_workspace){wanted, data, most, 0, first};
    return made;
}

/* One large plan that runs once, as a step's first may be, must not hold memory for good. */
static int is_too_large(dycl_workspace *workspace) {
    int look = ++workspace->uses >= LOOK;
    if (!look && !workspace->first) return 0;
    int is = workspace->bytes > (workspace->first ? SOME : MUCH) && workspace->most < workspace->bytes / 2;
    if (look) workspace->most = 0, workspace->uses = 0;
    return is;
}

void dycl_workspace_give(dycl_workspace *workspace) {
    if (is_too_large(workspace)) {
        release(workspace);
        return;
    }
    for (int i = 0; i < KEPT; i++) {
        dycl_workspace *empty = NULL;
        if (atomic_compare_exchange_strong(&pool[i], &empty, workspace)) return;
    }
    release(workspace);
}

void dycl_workspace_trim(void) {
    for (int i = 0; i < KEPT; i++) release(atomic_exchange(&pool[i], NULL));
}
