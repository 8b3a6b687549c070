#include "base/alloc.h"
#include "base/sigstack.h"
#include "dnnl/internal.h"

struct dycl_prim_memory {
    dnnl_exec_arg_t arg[DYCL_MAX_ARGS]; // memory objects owned
    const void *handle[DYCL_MAX_ARGS];  // what each points to now
    int count;
};

/* A thread starts looking at its own slot, so that threads that share a primitive do not fight for one. */
static atomic_uint next_slot;
static _Thread_local unsigned own_slot;

void dycl_prim_memory_destroy(dycl_prim_memory *own) {
    if (!own) return;
    for (int i = 0; i < own->count; i++) dnnl_memory_destroy(own->arg[i].memory);
    dycl_free(own);
}

static dycl_status create_memory(const dycl_prim *prim, dycl_prim_memory **out) {
    dnnl_engine_t engine;
    dycl_prim_memory *own = NULL;
    dycl_status status;
    DYCL_TRY(dycl_dnnl_engine(&engine));
    own = dycl_alloc_zero(sizeof *own);
    if (!own) return dycl_error_set("out of memory");
    for (int i = 0; i < prim->arg_count; i++) {
        own->arg[i].arg = prim->arg[i].arg;
        DYCL_TRY(dycl_dnnl_check(dnnl_memory_create(&own->arg[i].memory, prim->arg[i].md, engine, DNNL_MEMORY_NONE),
                                 "memory"));
        own->count++;
    }
    *out = own;
    return DYCL_OK;
fail:
    dycl_prim_memory_destroy(own);
    return status;
}

dycl_status dycl_prim_execute(const dycl_prim *prim, const dycl_prim_args *args) {
    dycl_prim *shared = (dycl_prim *)(uintptr_t)prim; /* only its idle memories change */
    dycl_prim_memory *own = NULL;
    dnnl_stream_t stream;
    dycl_status status = dycl_dnnl_stream(&stream);
    if (status != DYCL_OK) return status;
    dycl_sigstack_need();
    if (__builtin_expect(!own_slot, 0)) own_slot = atomic_fetch_add(&next_slot, 1) % DYCL_PRIM_MEMORIES + 1;
    unsigned slot = own_slot - 1;
    own = atomic_exchange_explicit(&shared->idle[slot], NULL, memory_order_acquire);
    if (__builtin_expect(!own, 0)) {
        status = create_memory(prim, &own);
        if (status != DYCL_OK) return status;
    }
    for (int i = 0; i < own->count; i++) {
        const void *handle = *(const void *const *)((const char *)args + prim->arg[i].offset);
        if (handle == own->handle[i]) continue;
        dnnl_memory_set_data_handle(own->arg[i].memory, (void *)(uintptr_t)handle);
        own->handle[i] = handle;
    }
    status = dycl_dnnl_check(dnnl_primitive_execute(prim->primitive, stream, own->count, own->arg), "execution");
    /* Nothing to wait for: a CPU stream of the OpenMP runtime has finished when execute returns. */
    dycl_prim_memory_destroy(atomic_exchange_explicit(&shared->idle[slot], own, memory_order_acq_rel));
    return status;
}
