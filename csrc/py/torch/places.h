/* What py/torch/calibrate.c finds once and abi.c uses for every operator. Private to py/torch.
 *
 * Ownership: the functions are torch's. Threads: set up once. */
#ifndef DYCL_PY_TORCH_PLACES_H
#define DYCL_PY_TORCH_PLACES_H

#include "py/torch/abi.h"

#include <stdbool.h>
#include <string.h>

typedef int32_t (*get_pointer_fn)(dycl_handle, void **);
typedef int32_t (*get_array_fn)(dycl_handle, int64_t **);
typedef int32_t (*get_i64_fn)(dycl_handle, int64_t *);
typedef int32_t (*get_i32_fn)(dycl_handle, int32_t *);

/* C++ torch::autograd::Edge: a std::shared_ptr to the node, and which of its inputs. */
typedef struct {
    void *node, *counts;
    uint32_t input;
} dycl_edge;

typedef struct {
    get_pointer_fn data_ptr;
    get_array_fn sizes, strides;
    get_i64_fn dim, storage_offset;
    get_i32_fn dtype;
    int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, dycl_handle *);
    int32_t (*new_handle)(dycl_handle, dycl_handle *);
    int32_t (*delete_tensor)(dycl_handle);
    int32_t (*new_undefined)(dycl_handle *);
    dycl_handle (*detach)(
        dycl_handle out,
        dycl_handle tensor); /* C++ at::_ops::detach::call: the caller has the room for what it returns */
    dycl_handle (*as_strided)(dycl_handle out, dycl_handle tensor, const int64_t *sizes, size_t rank,
                              const int64_t *strides, size_t also_rank,
                              const void *offset); /* C++ at::_ops::as_strided::call; an optional<SymInt> */
    bool (*is_leaf)(dycl_handle tensor), (*is_view)(dycl_handle tensor); /* C++ at::TensorBase's: they only look */
    dycl_handle (*base)(dycl_handle tensor);                             /* C++ at::TensorBase::_base, of a view */
    dycl_edge *(*gradient_edge)(dycl_edge *out, dycl_handle tensor);     /* C++ torch::autograd::impl::gradient_edge */
    void (*set_gradient_edge)(dycl_handle tensor, dycl_edge *edge);      /* takes the edge's node */
    bool (*keeps_graph)(void);     /* C++ torch::autograd::get_current_graph_task_keep_graph */
    const void *(*executed)(void); /* C++ torch::autograd::get_current_graph_task_exec_info (wanted.c) */
    int (*backward_pass)(void);    /* C++ torch::autograd::get_current_graph_task_id; -1: none */
    bool (*has_callbacks)(void);   /* C++ at::hasCallbacks */
    bool (*grad_enabled)(void);
    void (*set_grad_enabled)(bool);
    PyObject *(*wrap)(const void *);
    int64_t (*mode_depth)(void);
    const char *(*mode_state)(void);
    int (*function_state)(void);
    void (*set_function_state)(int);
    void *dispatch_state, *library;
} dycl_abi_functions;

/* Calibrated places. */
typedef struct {
    size_t mode_stack, key_set, storage, version_pointer, version_inside, autograd_meta, storage_resizable;
    uint64_t plain_keys, inference_keys;
    dycl_dispatch_state inference_state;
} dycl_abi_places;

extern dycl_abi_functions dycl_abi_torch;
extern dycl_abi_places dycl_abi_place;
extern int32_t dycl_abi_to_torch[DYCL_DTYPE_COUNT]; /* dtype codes */
extern int8_t dycl_abi_from_torch[256];             /* -1: not represented */

static inline const char *pointer_at(const char *base, size_t offset) {
    const char *p;
    memcpy(&p, base + offset, sizeof p);
    return p;
}

/* A std::vector of shared pointers in torch's thread-local state: asked for every recorded operator, so read without a
 * call. */
static inline int64_t stack_bytes(const char *state, size_t at) {
    const char *begin, *end;
    memcpy(&begin, state + at, sizeof begin);
    memcpy(&end, state + at + sizeof begin, sizeof end);
    return end - begin;
}

#define SHARED_POINTER 16

#endif
