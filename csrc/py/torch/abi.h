/* torch's tensors read from C: through the stable C ABI (torch/csrc/inductor/aoti_torch/c/shim.h), found with dlsym,
 * and through a few fields of TensorImpl and StorageImpl whose places are *calibrated* at import: found by comparing
 * memory with what Python reports for several tensors. Where the calibration finds no single place, dycl does not
 * accelerate (dycl_abi_setup says why).
 *
 * Ownership: dycl_handle is an owned at::Tensor *, freed by dycl_abi_delete. Threads: GIL held. */
#ifndef DYCL_PY_TORCH_ABI_H
#define DYCL_PY_TORCH_ABI_H

#include "ir/graph.h"
#include "py/torch/state.h"

typedef void *dycl_handle;

int dycl_abi_setup(PyObject *torch);     /* 0, or -1 with an exception */
void *dycl_abi_symbol(const char *name); /* a C function of torch, after the setup; NULL: this torch has it not */
int32_t dycl_abi_torch_dtype(dycl_dtype dtype);

/* Facts of a tensor object (any PyObject that THPVariable_Check accepts; its C++ implementation must be alive). */
static inline dycl_handle dycl_abi_borrow(PyObject *tensor) {
    return (char *)tensor + sizeof(PyObject);
} /* the at::Tensor field */
static inline char *dycl_abi_impl(PyObject *tensor) { return *(char **)((char *)tensor + sizeof(PyObject)); }
static inline char *dycl_abi_handle_impl(dycl_handle handle) { return *(char **)handle; }

int dycl_abi_is_plain(const char *impl); /* dense CPU tensor: no functorch, sparse, quantised, conj, neg, meta... */
int dycl_abi_is_inference(const char *impl);
int dycl_abi_made_in_inference(const char *impl); /* whatever its other dispatch keys: a lazy wrapper's, too */
int dycl_abi_has_autograd_meta(const char *impl); /* 0: certainly does not require grad */
int dycl_abi_requires_grad(PyObject *tensor);     /* an error counts as 1 */
int dycl_abi_is_leaf_view(dycl_handle tensor);    /* Python's is_leaf gives it the history that it waits for */
int dycl_abi_keeps_graph(void);                   /* of the backward pass that runs now; 1 where that is not known */
int64_t dycl_abi_backward_pass(void);             /* a number for the pass that runs now; -1: none, or not known */
int dycl_abi_has_callbacks(void);                 /* a profiler is told of operators and labels; 1: or not known */
uint32_t dycl_abi_version(const char *impl);      /* 0 for inference tensors */
void dycl_abi_add_version(const char *impl,
                          uint32_t writes); /* for all that share the counter; nothing for inference tensors */
int dycl_abi_storage_foreign(
    const char *impl); /* 1: the memory may be shared with NumPy or others (storage is not resizable) */
void dycl_abi_storage_make_foreign(char *impl);
uint64_t dycl_abi_storage(const char *impl);        /* identity of the storage: address of the StorageImpl */
uint64_t dycl_abi_use_count_word(const char *impl); /* the reference count word, to compare only */

typedef struct {
    dycl_dtype dtype;
    int rank;
    const int64_t *sizes, *strides; /* borrowed from the tensor */
    void *data;
} dycl_tensor_view;
int dycl_abi_rank(dycl_handle tensor);                        /* 0 too where it cannot be told */
int dycl_abi_read(dycl_handle tensor, dycl_tensor_view *out); /* 1, or 0 when rank or dtype is not represented */

/* New tensors (uninitialised, dense by strides). NULL without an exception when torch fails. */
dycl_handle dycl_abi_empty(dycl_dtype dtype, int rank, const int64_t *sizes, const int64_t *strides);
dycl_handle dycl_abi_copy_handle(dycl_handle tensor); /* another reference to the same tensor */
/* A view as torch's own operator makes it: it shares the version counter, so that writes through it are seen. NULL with
 * an exception. offset: elements from the start of the storage */
dycl_handle dycl_abi_view(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset);
/* One that a program made: unrecorded: gradients were disabled; part: one of several that a function made at once. */
dycl_handle dycl_abi_view_as_made(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides,
                                  int64_t offset, int unrecorded, int part);
dycl_handle dycl_abi_view_with_history(dycl_handle base, int rank, const int64_t *sizes, const int64_t *strides,
                                       int64_t offset); /* the same, recorded by autograd */
dycl_handle dycl_abi_detach(dycl_handle base); /* the whole of it, as Tensor.detach makes it. NULL with an exception */
/* A tensor of this one's looks that leads where it leads in autograd's graph, without its memory. For what has a
 * history and is no view (of these torch may make the history now, and fail). NULL without an exception: not with this
 * torch. */
dycl_handle dycl_abi_leading_along(dycl_handle tensor);
void dycl_abi_delete(dycl_handle tensor);
int64_t dycl_abi_storage_offset(dycl_handle tensor);
PyObject *dycl_abi_wrap(
    dycl_handle tensor); /* new reference to the Python object of this tensor; the handle stays the caller's */

/* Thread state of torch. */
int dycl_abi_grad_enabled(void);
int dycl_abi_mode_depth(void);           /* torch function modes on the stack */
int dycl_abi_torch_function_is_on(void); /* function modes see what is called */
int dycl_abi_torch_function_off(
    void); /* our own calls into torch must not come back to our mode; answers the state to restore */
void dycl_abi_torch_function_restore(int state);
typedef struct {
    uint64_t included, excluded;
} dycl_dispatch_state; /* thread-local dispatch keys: autocast, functorch, tracing, inference mode... */
const dycl_dispatch_state *dycl_abi_dispatch_state(void);     /* this thread's */
void dycl_abi_dispatch_set(const dycl_dispatch_state *state); /* this thread's */
/* This thread's state as it is inside of torch's own kernels, below autograd; answers what it was. */
dycl_dispatch_state dycl_abi_dispatch_enter_kernel(void);
int dycl_abi_dispatch_inference(const dycl_dispatch_state *state); /* 1: inference mode */
int dycl_abi_dispatch_plain(const dycl_dispatch_state *state);     /* 1 for ordinary and inference mode */

#endif
