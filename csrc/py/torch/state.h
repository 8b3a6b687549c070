/* What the Python side shares: torch's types and functions, found once when torch is there.
 *
 * Ownership: every PyObject * here is owned for the life of the process. Threads: read under the GIL. */
#ifndef DYCL_PY_TORCH_STATE_H
#define DYCL_PY_TORCH_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/dtype.h"
#include "base/status.h"

typedef struct {
    int ready;                    /* torch is imported and everything below was found */
    PyObject *torch;              /* owned: module torch */
    PyTypeObject *tensor_type;    /* owned: torch.Tensor */
    PyTypeObject *parameter_type; /* owned: torch.nn.Parameter */
    PyTypeObject *buffer_type;    /* owned: torch.nn.Buffer's class, or NULL */
    PyTypeObject *size_type;      /* owned: torch.Size */
    PyTypeObject *dtype_type, *device_type, *layout_type, *memory_format_type, *generator_type; /* owned */
    PyTypeObject *method_wrapper_type;     /* owned: of a bound getter or setter */
    PyTypeObject *module_type;             /* owned: torch.nn.Module */
    PyTypeObject *lazy_type;               /* owned: our subclass of torch.Tensor */
    PyObject *dtypes[DYCL_DTYPE_COUNT];    /* owned: torch.float32... */
    PyObject *cpu_device, *strided_layout; /* owned */
    PyObject *make_wrapper;                /* owned: torch.Tensor._make_wrapper_subclass, and its arguments: */
    PyObject *wrapper_sizes, *wrapper_policy, *wrapper_names; /* owned */
    PyObject *swap_impl;                                      /* owned: torch._C._swap_tensor_impl */
    PyObject *push_mode, *pop_mode;                           /* owned: torch's function mode stack */
    PyObject *mode;                                           /* owned: our mode object */
    PyObject *steal_handle; /* owned: torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr, when THPVariable_Wrap is
                               not found */
    PyObject *get_default_dtype, *get_num_threads; /* owned */
    PyObject *deterministic;                       /* owned: torch._C._get_deterministic_algorithms */
    PyObject *make_tensor, *as_tensor;             /* owned: torch.tensor and torch.as_tensor */
    PyObject *as_strided;                          /* owned: torch.as_strided */
    PyObject *inference_mode;                      /* owned: torch.inference_mode */
    PyObject *eval_frame_callback; /* owned: torch._C._dynamo.eval_frame.get_eval_frame_callback, or NULL */
    PyObject *anomaly_enabled;     /* owned: torch.is_anomaly_enabled, or NULL, and */
    PyObject *saved_tensors_hooks; /* owned: torch._C._autograd._top_saved_tensors_default_hooks */
    PyObject *mkldnn_enabled;      /* owned: torch._C._get_mkldnn_enabled, or NULL */
    PyObject *set_grad_enabled;    /* owned: torch._C._set_grad_enabled */
    int attention_chosen;          /* the program has switched off one of attention's kernels (py/intercept/watch.c) */
    PyObject *detach_name, *bernoulli_name, *call_impl_name;       /* owned: interned */
    PyObject *requires_grad_name, *grad_fn_name;                   /* owned: interned names */
    PyObject *torch_function_name;                                 /* owned: an interned name */
    PyObject *contiguous_format, *preserve_format, *channels_last; /* owned: memory formats */
} dycl_py_state;

extern dycl_py_state dycl_py;

int dycl_state_find(void); /* fills dycl_py from dycl_py.torch; 0, or -1 with an exception that says what is missing */
PyObject *dycl_py_requires_grad(PyObject *tensor); /* new reference */
PyObject *dycl_py_grad_fn(PyObject *tensor);       /* new reference */
int dycl_py_anomaly(void); /* whether anomaly mode is on; 0 too where torch cannot say. -1 with an exception */
PyObject *dycl_py_ints(int count, const int64_t *values); /* a tuple of ints. New reference */
void dycl_py_raise(void);             /* what the core's last ERROR says, as a MemoryError where it speaks of memory */
int dycl_py_is_cpu(PyObject *device); /* a torch.device or the name of one */
int dycl_py_is_numpy_scalar(const PyObject *o); /* a number of NumPy's own, no array and of no program's class */
void dycl_py_pause(void);                       /* a millisecond's tenth, without the GIL */
/* A number of so many bits, spread over all of them. */
static inline uint32_t dycl_address_hash(const void *address, int bits) {
    return (uint32_t)(((uint64_t)(uintptr_t)address * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - bits));
}
/* Asks torch for the default dtype. 1: it is one that can be recorded with, and dycl_default_dtype (record/build.h) is
 * it. 0: another one. */
int dycl_py_ask_default_dtype(void);
int dycl_dtype_from_object(PyObject *dtype, dycl_dtype *out); /* 1 when it is a dtype that we represent */

#endif
