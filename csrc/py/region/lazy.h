/* The lazy tensor: a subclass of torch.Tensor whose value is a node of the running region's graph, or a computed
 * tensor.
 *
 * Ownership: a lazy tensor owns its `real` handle; `region` is borrowed (a region outlives its lazy tensors: at its end
 * every one that is still referenced becomes a plain torch.Tensor). Virgin objects (torch's C++ never kept them) go
 * back to a pool when they die.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_REGION_LAZY_H
#define DYCL_PY_REGION_LAZY_H

#include "py/torch/abi.h"
#include "py/torch/state.h"

struct dycl_region;
struct dycl_deferred;

enum {
    DYCL_OWN_COPY = 1,  /* torch's operator makes a tensor of its own where ours is a view of what it computed */
    DYCL_OWN_ALIAS = 2, /* detach */
    DYCL_OWN_VIEW =
        4 /* torch's operator answers a view of a tensor that nobody sees, where ours is what was computed */
};

/* Autograd refuses to write such a view with a history, and to show its node where its base was written so. */
enum {
    DYCL_VIEW_UNRECORDED = 1, /* gradients were disabled */
    DYCL_VIEW_PART = 2        /* one of several that a function made at once: chunk, unbind... */
};

typedef struct dycl_lazy {
    struct dycl_region *region; /* borrowed; NULL: not in a region (pooled, or became plain) */
    dycl_handle real;           /* owned; NULL while pending */
    uint32_t value;             /* in region->graph, valid while epoch == region->epoch */
    uint64_t epoch;
    uint32_t writes;             /* while pending: the version that its tensor will have */
    uint32_t called, called_nth; /* the call that it is a result of, +1, and which (called.h); 0: not known */
    uint32_t alias;              /* it is this alias, or a view of it, +1 (alias.h); 0: of none */
    uint8_t wrapper_dtype;       /* what torch's C++ believes: fixed when the object was made */
    uint8_t aliased; /* the computed storage is shared with another tensor: in-place operators go to torch */
    uint8_t own;     /* a view here and none to torch, or the reverse: DYCL_OWN_... */
    uint8_t made;    /* of a view: what torch remembers of its making: DYCL_VIEW_... */
    PyObject *error; /* owned: (type, arguments) of what its operator raised: it has no value, and no region */
    struct dycl_deferred *deferred; /* owned: it was not computed with its segment (defer.h), and value is one of
                                         that segment's graph */
    PyObject *prev, *next;          /* borrowed: list of the region's living lazy tensors, in order of creation */
} dycl_lazy;

extern Py_ssize_t dycl_lazy_fields_at;
static inline dycl_lazy *dycl_lazy_of(PyObject *o) { return (dycl_lazy *)((char *)o + dycl_lazy_fields_at); }
static inline int dycl_is_lazy(PyObject *o) { return Py_TYPE(o) == dycl_py.lazy_type; }
static inline int dycl_is_tensor(PyObject *o) { /* of any class */
    PyTypeObject *type = Py_TYPE(o);
    return type == dycl_py.lazy_type || type == dycl_py.tensor_type || type == dycl_py.parameter_type ||
           PyType_IsSubtype(type, dycl_py.tensor_type);
}

void dycl_lazy_made_of(PyObject *view, PyObject *of); /* a new view keeps how it, and what it is one of, was made */
int dycl_lazy_setup(void);                            /* makes the type; 0, or -1 with an exception */
PyObject *dycl_lazy_metaclass(void); /* the class of that type: it compares as torch.Tensor. New reference */
PyObject *dycl_lazy_new(struct dycl_region *region, uint32_t value); /* new reference */
/* One that is computed already. aliased: others may have its memory. The handle stays the caller's. New reference */
PyObject *dycl_lazy_computed(struct dycl_region *region, dycl_dtype dtype, dycl_handle tensor, int aliased);
void dycl_lazy_unlink(dycl_lazy *lazy); /* leaves the region's list */

/* Turns the object into a plain torch.Tensor, in place: same object, weak references and __dict__ kept. `real` must be
 * set. 0 or -1. */
int dycl_lazy_become_plain(PyObject *object);
extern _Thread_local int dycl_lazy_swaps; /* torch swaps two tensors for us, not for the program */

/* Takes the reference and gives one to the same tensor as a plain object: a new one where nobody else has the old (its
 * identity then cannot be seen, and the lazy object goes back to the pool), else the very same object, unchanged. */
PyObject *dycl_lazy_exchange(PyObject *object);

/* It leaves its region without a value, and raises this error (type, arguments) from now on. */
void dycl_lazy_lose(PyObject *object, PyObject *error);
/* Of one that has neither a value nor a region: what raised there. -1 */
int dycl_lazy_raise(const dycl_lazy *lazy);

/* Shape, strides and dtype without computing anything. */
typedef struct {
    dycl_dtype dtype;
    int rank;
    const int64_t *sizes, *strides;
} dycl_lazy_meta;
int dycl_lazy_describe(PyObject *object, dycl_lazy_meta *out); /* 0 or -1 */

PyObject *dycl_size_object(int rank, const int64_t *sizes); /* torch.Size */

#endif
