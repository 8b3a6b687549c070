#include "base/alloc.h"
#include "base/sigstack.h"
#include "dnnl/internal.h"

struct dycl_binding {
    dnnl_exec_arg_t arg[DYCL_MAX_ARGS]; // memory objects owned
    const void *handle[DYCL_MAX_ARGS];  // what each points to now
    int count;
};

/* A thread starts looking at its own slot, so that threads that share a primitive do not fight for one. */
static atomic_uint next_slot;
static _Thread_local unsigned own_slot;

void dycl_binding_destroy(dycl_binding *binding) {
    if (!binding) return;
    for (int i = 0; i < binding->count; i++) dnnl_memory_destroy(binding->arg[i].memory);
    dycl_free(binding);
}

static dycl_status binding_create(const dycl_prim *prim, dycl_binding **out) {
    dnnl_engine_t engine;
    dycl_binding *binding = NULL;
    dycl_status status;
    DYCL_TRY(dycl_dnnl_engine(&engine));
    binding = dycl_alloc_zero(sizeof *binding);
    if (!binding) return dycl_error_set("out of memory");
    for (int i = 0; i < prim->arg_count; i++) {
        binding->arg[i].arg = prim->arg[i].arg;
        DYCL_TRY(dycl_dnnl_check(dnnl_memory_create(&binding->arg[i].memory, prim->arg[i].md, engine, DNNL_MEMORY_NONE),
                                 "memory"));
        binding->count++;
    }
    *out = binding;
    return DYCL_OK;
fail:
    dycl_binding_destroy(binding);
    return status;
}

dycl_status dycl_prim_execute(const dycl_prim *prim, const dycl_prim_args *args) {
    dycl_prim *shared = (dycl_prim *)(uintptr_t)prim; /* only its idle bindings change */
    dycl_binding *binding = NULL;
    dnnl_stream_t stream;
    dycl_status status = dycl_dnnl_stream(&stream);
    if (status != DYCL_OK) return status;
    dycl_sigstack_need();
    if (__builtin_expect(!own_slot, 0)) own_slot = atomic_fetch_add(&next_slot, 1) % DYCL_BINDINGS + 1;
    unsigned slot = own_slot - 1;
    binding = atomic_exchange_explicit(&shared->idle[slot], NULL, memory_order_acquire);
    if (__builtin_expect(!binding, 0)) {
        status = binding_create(prim, &binding);
        if (status != DYCL_OK) return status;
    }
    for (int i = 0; i < binding->count; i++) {
        const void *handle = *(const void *const *)((const char *)args + prim->arg[i].offset);
        if (handle == binding->handle[i]) continue;
        dnnl_memory_set_data_handle(binding->arg[i].memory, (void *)(uintptr_t)handle);
        binding->handle[i] = handle;
    }
    status =
        dycl_dnnl_check(dnnl_primitive_execute(prim->primitive, stream, binding->count, binding->arg), "execution");
    /* Nothing to wait for: a CPU stream of the OpenMP runtime has finished when execute returns. */
    dycl_binding_destroy(atomic_exchange_explicit(&shared->idle[slot], binding, memory_order_acq_rel));
    return status;
}
