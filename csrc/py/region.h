/* A region: the dynamic extent of one accelerated call in one thread. It holds the graph being recorded, the plain tensors that feed it
 * and the lazy tensors that are alive.
 *
 * Ownership: regions are pooled per thread; a region owns references to its feeds' tensors until the segment ran. Threads: a region
 * belongs to the thread that entered it; all functions here need the GIL, which dycl_region_flush may give up while native code runs. */
#ifndef DYCL_PY_REGION_H
#define DYCL_PY_REGION_H

#include "exec/cache.h"
#include "exec/plan.h"
#include "record/bail.h"
#include "py/lazy.h"

typedef struct dycl_site dycl_site; /* statistics and predictions of one accelerated callable, see site.h */

typedef struct {
    PyObject *object;  /* owned: plain tensor, or lazy tensor's handle below; NULL when handle is set */
    dycl_handle handle; /* owned: computed lazy tensor at the time it was recorded */
    dycl_feed feed;
} dycl_bound_feed;

typedef struct dycl_region {
    dycl_graph graph;
    uint32_t epoch;              /* counts segments: values of older ones are no longer in the graph */
    dycl_scalar *scalars;
    uint32_t scalar_room;
    dycl_bound_feed *feeds;
    uint32_t feed_room;
    struct { PyObject *object; uint32_t epoch, value; } *feed_table; /* plain tensors already fed in this segment; power-of-two open addressing */
    uint32_t feed_table_room;
    int64_t (*ranges)[2];        /* per value: bounds of integer values, low > high when unknown */
    uint32_t range_room;
    PyObject *first, *last;      /* borrowed: living lazy tensors */
    uint32_t living;
    int foreign;                 /* a feed of this segment shares memory with NumPy: flush after the operator */
    int flushing;
    int mode_depth;              /* torch function modes on the stack while ours is on top */
    int was_grad_enabled;
    dycl_dispatch_state dispatch;
    dycl_site *site;             /* borrowed */
    struct dycl_region *outer;   /* suspended region of this thread, or the next one in the free list */
} dycl_region;

extern _Thread_local dycl_region *dycl_region_current; /* NULL outside */

PyObject *dycl_region_call(dycl_site *site, PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Whether an operator may be recorded now: a region is open, no foreign mode on top, dispatch state as at entry. */
int dycl_region_open(dycl_region *region);

/* Computes what is pending. 0, or -1 with an exception. */
int dycl_region_flush(dycl_region *region, dycl_bail why);
/* Computes a lazy tensor; its `real` is set afterwards. */
int dycl_region_compute(PyObject *lazy, dycl_bail why);
/* Computes it and makes it a plain tensor, for code that will look inside. */
int dycl_region_make_plain(PyObject *lazy, dycl_bail why);

/* The value of a tensor operand in the region's graph. 1; 0 when it is not represented (*why says so); -1 with an exception. */
int dycl_region_value(dycl_region *region, PyObject *tensor, uint32_t *out_value, dycl_bail *why);
int dycl_region_scalar(dycl_region *region, dycl_dtype dtype, dycl_scalar scalar, uint32_t *out_value); /* 0 or -1 */
/* After a node: its lazy tensor (new reference), or NULL with an exception. */
PyObject *dycl_region_result(dycl_region *region, uint32_t value);
int64_t *dycl_region_range(dycl_region *region, uint32_t value); /* bounds of an integer value, to read or set; NULL: out of memory */

#endif
