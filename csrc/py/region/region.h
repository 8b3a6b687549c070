/* A region: the dynamic extent of one accelerated call in one thread. It holds the graph being recorded, the plain
 * tensors that feed it and the lazy tensors that are alive.
 *
 * Ownership: regions are pooled; a region owns references to its feeds' tensors until the segment ran. Threads: a
 * region belongs to the thread that entered it; all functions here need the GIL, which dycl_region_flush may give up
 * while native code runs. */
#ifndef DYCL_PY_REGION_REGION_H
#define DYCL_PY_REGION_REGION_H

#include "exec/cache/pieces.h"
#include "exec/plan/plan.h"
#include "py/region/lazy.h"
#include "record/build.h"

struct dycl_called_log;
struct dycl_site; /* statistics and predictions of one accelerated callable, see site/site.h */

typedef struct {
    PyObject *object;   /* owned: a plain tensor; NULL when handle is set */
    dycl_handle handle; /* owned: a lazy tensor that was computed before this segment */
} dycl_source;
static inline dycl_handle dycl_source_handle(const dycl_source *source) { /* the source's */
    return source->object ? dycl_abi_borrow(source->object) : source->handle;
}

typedef struct {
    PyObject *object; /* borrowed from the feeds */
    uint64_t epoch;
    uint32_t value;
} dycl_fed;

typedef struct {
    uint32_t value, version; /* of a value that in-place operators made: torch counts them */
} dycl_written;

typedef struct {
    uint32_t feed, value; /* of a plain tensor that operators in place gave another value (replace.h) */
} dycl_replaced;

typedef struct {
    uint64_t storage, epoch;
    uint32_t count; /* of feeds that lie there */
} dycl_fed_storage;

typedef struct dycl_region {
    dycl_recorder recorder;
    uint64_t epoch;       /* counts segments, never wraps: a value of an older one is no longer in the graph */
    dycl_source *sources; /* per feed */
    uint32_t source_room;
    dycl_feed *feeds; /* per feed, as the plan wants them */
    uint32_t feed_room;
    uint32_t *outputs, *output_of; /* scratch of the flush: values to compute; per value, its output's position + 1 */
    dycl_handle *handles;          /* scratch of the flush: per output */
    void **addresses;
    uint32_t output_room, output_of_room;
    dycl_fed *fed; /* plain tensors of this segment, by address; open addressing */
    uint32_t fed_room, fed_count;
    dycl_written *written; /* of this segment */
    uint32_t written_room, written_count;
    dycl_source *late; /* owned: what is let go of with the sources, as that may run Python code */
    uint32_t late_room, late_count;
    int may_track;    /* what needs gradients is recorded (track.h), from where they are enabled for the first time */
    int tracks;       /* in this segment: not in those that begin with gradients disabled, which are as any others */
    uint8_t *tracked; /* by value of this segment, as far as it was looked at: has a history */
    uint32_t tracked_room, tracked_count;
    const char **leaves; /* owned: those (TensorImpl, as an address only) that nodes of this call lead to (order.h) */
    uint32_t leaf_room, leaf_count;
    PyObject *calling;          /* borrowed: the function of torch's that is being recorded */
    struct dycl_alias *aliases; /* owned: of this segment (alias.h) */
    uint32_t alias_room, alias_count;
    struct dycl_called_log *called; /* owned: calls with a history (called.h); NULL: none */
    PyObject *failure;              /* owned: an exception that the program has to meet behind the flush, or NULL */
    int replaces;                   /* plain tensors may be given another value: only torch's own code runs in here */
    dycl_replaced *replaced;        /* of this segment */
    uint32_t *replaced_feeds;       /* scratch of the flush */
    uint32_t replaced_room, replaced_feed_room, replaced_count;
    int unseen;                 /* plain tensors may get another value in this segment, without replaces */
    dycl_fed_storage *storages; /* where either is: those of the feeds; open addressing */
    uint32_t storage_room;
    PyObject *first, *last; /* borrowed: living lazy tensors in order of creation */
    uint32_t living;
    uint32_t deferred;      /* computations that lazy tensors wait for (defer.h) */
    uint32_t look_at;       /* nodes at which the work of this segment is looked at again */
    double work;            /* of the nodes before that (record/work.h) */
    int foreign;            /* others may write a feed of this segment unseen: flush after the operator */
    unsigned long flushing; /* the thread that computes its segment, perhaps without the GIL; 0: none */
    int flushing_in;        /* the process in which it does (base/lock.h) */
    struct dycl_tracked_flush *tracked_flush; /* borrowed while its results get their histories, or NULL */
    uint8_t elsewhere;                        /* while it is computed: the program has entered another state since */
    int closed;                               /* reasons why nothing may be recorded (DYCL_CLOSED_...) */
    int gradient;                             /* a tensor was asked for that requires gradients (entry/gradient.h) */
    uint8_t made;                             /* plans made during this call: DYCL_MADE_ bits */
    int passing;                  /* the next call that reaches our mode is ours and goes straight to torch */
    int mode_depth;               /* torch function modes on the stack while ours is on top; MODE_ASIDE: it is off */
    dycl_dispatch_state dispatch; /* at entry */
    uint32_t position;            /* in the site's TraceGraph: where the last segment left */
    dycl_segment *expected[DYCL_GRAPH_EXPECTED]; /* retained: what the recorder compares with */
    int expected_count;
    struct dycl_region_ahead *ahead; /* owned: the runner's work on the expected segment; NULL: none */
    uint8_t runs_ahead, wants_ahead; /* this region may; an operator that is recorded now starts or feeds it */
    struct dycl_lesson *lesson; /* owned: what the call that goes to torch will teach (torch/form.h); NULL: nothing */
    struct dycl_site *site;     /* borrowed */
    struct dycl_region *next;   /* of those that are free, or of those that are taken */
} dycl_region;

enum {
    DYCL_CLOSED_DTYPE = 1,    /* the default dtype is neither float32 nor float64 */
    DYCL_CLOSED_AUTOGRAD = 2, /* in an autograd.Function whose results get a history */
    DYCL_CLOSED_ASIDE = 4,    /* torch.compile or torch.jit runs inside: our mode has left, until the end of the call */
    DYCL_CLOSED_END = 8,
    DYCL_CLOSED_GRADIENT = 16, /* an operator met a tensor that requires gradients: until the end of the call; our mode
                                  stays, and passes everything on */
    DYCL_CLOSED_MODE = 32,     /* another mode stands below ours: the same */
    DYCL_CLOSED_SILENCE = 64,  /* within torch._C.DisableTorchFunction: our mode is not called */
    DYCL_CLOSED_ANOMALY = 128  /* anomaly mode is on */
};

/* torch, or we, took our mode off the stack for the time of a call. What is on top then is a mode of the program's. */
enum { DYCL_MODE_ASIDE = -1 };

/* initial-exec: one instruction instead of a call, for every recorded operator */
extern _Thread_local dycl_region *dycl_region_current __attribute__((tls_model("initial-exec"))); /* NULL outside */

void dycl_regions_trim(void); /* frees those that are kept to be used again */

/* Not closed, no thread computes in it, dispatch keys as at entry. */
static inline int dycl_region_open(const dycl_region *region) {
    const dycl_dispatch_state *state = dycl_abi_dispatch_state();
    return region && !region->flushing && !region->closed && state->included == region->dispatch.included &&
           state->excluded == region->dispatch.excluded;
}
/* Whether an operator may be recorded now: open, and no foreign mode on top. */
static inline int dycl_region_records(const dycl_region *region) {
    return dycl_region_open(region) && dycl_abi_mode_depth() == region->mode_depth;
}

/* Before the tensor gets other memory: what other threads have recorded that reads what it has is computed, and who
 * computes is waited for. 0 or -1. */
int dycl_region_free_memory(PyObject *tensor);
/* A thread begins (1) or ends (-1) to compute on tensors' memory without the GIL, in no region. */
void dycl_readers_add(int count);
/* Before it takes addresses: who waits for those that compute goes first, or would never find a moment without any. */
void dycl_readers_yield(void);
void dycl_region_pause(void); /* others may go on, for a moment */

/* Every lazy tensor becomes plain, our mode leaves, and the rest of the call runs in torch. 0 or -1. */
int dycl_region_step_aside(dycl_region *region, dycl_bail why);
/* The same for gradients: our mode is perhaps at work, so it stays where it is. */
int dycl_region_meet_gradient(dycl_region *region);
int dycl_region_meet_mode(dycl_region *region);
int dycl_region_meet_silence(dycl_region *region);
/* Computes what is pending. 0, or -1 with an exception. */
int dycl_region_flush(dycl_region *region, dycl_bail why);
/* Raises region->failure, in the region's own thread. 0 or -1. */
int dycl_region_meet_failure(dycl_region *region);
/* Within a flush, which goes on without what was asked for: clears what torch raised. What a signal handler raised is
 * raised behind the flush. */
void dycl_region_put_off(dycl_region *region);
/* Lets go of a reference or of a handle when the segment is over, as that may run Python code. NULL: nothing. */
void dycl_region_let_go(dycl_region *region, PyObject *object, dycl_handle handle);
/* Computes a lazy tensor of which Python wants an element; what else is pending may be deferred (defer.h). 0 or -1.
 */
int dycl_region_fetch(PyObject *lazy, dycl_bail why);
/* Computes a lazy tensor; its `real` is set afterwards, or another thread has made it plain. 0 or -1. */
int dycl_region_compute(PyObject *lazy, dycl_bail why);
/* Whether a tensor needs a gradient, as a lazy view of what does may: 1 or 0, where a pending one counts as its base.
 * -1 with an exception. */
int dycl_region_needs_gradient(PyObject *tensor);
/* Before gradients are enabled where they were not: what was fed without asking for them must not be taken for the same
 * tensor with them, so the segment ends; and lazy views of what needs one become plain, because what is recorded of
 * lazy tensors needs none. 0 or -1. */
int dycl_region_enable_gradients(dycl_region *region);
/* Computes it and makes it a plain tensor, for code that will look inside. 0 or -1. */
int dycl_region_make_plain(PyObject *lazy, dycl_bail why);

/* The value of a tensor in the region's graph. OK; BAIL (recorder.why says why); ERROR with a Python exception. */
dycl_status dycl_region_value_slow(dycl_region *region, PyObject *tensor, uint32_t *out_value);
static inline dycl_status dycl_region_value(dycl_region *region, PyObject *tensor, uint32_t *out_value) {
    if (dycl_is_lazy(tensor)) {
        const dycl_lazy *lazy = dycl_lazy_of(tensor);
        if (lazy->region == region && lazy->epoch == region->epoch) {
            *out_value = lazy->value;
            return DYCL_OK;
        }
    }
    return dycl_region_value_slow(region, tensor, out_value);
}
/* The same of a computed tensor of ours (the handle stays the caller's), and of a plain one whose history does not
 * matter. */
dycl_status dycl_region_feed(dycl_region *region, dycl_handle tensor, uint32_t *out_value);
dycl_status dycl_region_feed_object(dycl_region *region, PyObject *tensor, uint32_t *out_value);
/* A plain tensor that is fed has another value from now on. */
void dycl_region_refeed(dycl_region *region, PyObject *tensor, uint32_t value);
/* The value of a plain tensor that is fed already. 1; 0: it is not. */
int dycl_region_fed(dycl_region *region, PyObject *tensor, uint32_t *out_value);
/* Whether what is recorded reads the memory of a plain tensor. */
int dycl_region_reads(const dycl_region *region, PyObject *tensor);
/* The lazy tensor of a recorded value (new reference), or NULL with an exception. */
PyObject *dycl_region_result(dycl_region *region, uint32_t value);
/* A longer segment is flushed: bounds the memory of programs that never ask for a value, and the time for which Ctrl-C
 * and other threads' results wait. Its work is looked at every DYCL_SEGMENT_LOOK nodes. */
#define DYCL_SEGMENT_NODES 16384
#define DYCL_SEGMENT_LOOK  64
#define DYCL_SEGMENT_WORK  25e9 /* operations: a tenth to a quarter of a second on two cores */
/* After an operator was recorded with all its results: what may not wait is computed. 0 or -1. */
int dycl_region_settle_now(dycl_region *region);
static inline int dycl_region_settle(dycl_region *region) {
    return __builtin_expect(region->foreign || region->recorder.graph.node_count >= region->look_at, 0)
               ? dycl_region_settle_now(region)
               : 0;
}
/* Whether it has a value of this segment that lies in the root's memory. */
static inline int dycl_region_looks_at(const dycl_region *region, const dycl_lazy *lazy, uint32_t root) {
    return lazy->epoch == region->epoch && region->recorder.graph.values[lazy->value].root == root;
}
/* Whether no other tensor, lazy or not, has the memory of one of this segment. */
int dycl_region_holds_alone(const dycl_region *region, PyObject *lazy);
/* Binds the object to another value: an in-place operator. 1; 0 when its memory is shared (recorder.why). */
int dycl_region_may_write(dycl_region *region, PyObject *lazy);
int dycl_region_rebind(dycl_region *region, PyObject *lazy, uint32_t value); /* 0 or -1 */
/* The root was written: the tensor and its views are bound to these values, in the order of the region's list; `made`
 * is their root. 0 or -1. */
int dycl_region_rebind_views(dycl_region *region, uint32_t root, uint32_t made, const uint32_t *values);
/* The root was written, and has its value still. 0 or -1. */
int dycl_region_count_view_writes(dycl_region *region, uint32_t root);
/* Binds the object to a tensor that torch made and wrote once, in its dtype, sizes and strides; the handle stays the
 * caller's. 0 or -1. */
int dycl_region_replace(dycl_region *region, PyObject *lazy, dycl_handle made);
/* The pending tensor's value was made by so many writes more than one sees. 0 or -1. */
int dycl_region_count_writes(dycl_region *region, PyObject *lazy, uint32_t writes);

#endif
