/* Bindings: a torch function or method on one side, recording on the other.
 *
 * A binding's function parses the call and records it. It answers a new reference; NULL without an exception for BAIL
 * (call->region's recorder.why says why; torch runs it then); NULL with an exception only for a real error.
 *
 * Threads: GIL held. Ownership: everything in a dycl_call is borrowed for the call. */
#ifndef DYCL_PY_BIND_CALL_H
#define DYCL_PY_BIND_CALL_H

#include "py/region/called.h"
#include "py/region/region.h"
#include "py/site/site.h"

#define DYCL_MOST_PARAMETERS 20

struct dycl_binding;

typedef struct {
    dycl_region *region;
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *kwnames;                 /* tuple of names; their values follow the positional ones in args. NULL: none */
    PyObject *kwdict;                  /* or a dict; NULL: none */
    PyObject *p[DYCL_MOST_PARAMETERS]; /* after dycl_call_parse: by position of the parameter; NULL when not given; past
                                          the row's parameters undefined */
    PyObject *out;                     /* the tensor that the result replaces (region/replace.h); NULL: none given */
    int in_place;                      /* called by its in-place name (add_): the result goes into p[0] */
    int keeps_result;                  /* in place, torch's gradient looks at the result instead of at the operand */
    PyObject *drawn_from; /* owned: the generator's state before this call drew from it (bind/noise.h), or NULL */
    int whole;            /* of the row: where it is known, operators in place may have a history */
    dycl_status status;   /* of dycl_call_finish, while it runs */
    PyObject *callable;   /* torch's function, or NULL: not known */
    int swapped;          /* its operands stand the other way round in args */
    uint32_t before;      /* value of the first operand, where gradients are recorded (region/called.h) */
    uint32_t first_value; /* of the graph when the call began (dycl_call_first) */
    uint64_t epoch;       /* of the segment whose values these are: a binding may compute what is pending */
    uint64_t recorded;    /* operators of the site when the call began */
} dycl_call;

typedef PyObject *(*dycl_bind_fn)(dycl_call *call, const struct dycl_binding *row);

/* Where a binding is found: */
enum {
    DYCL_AT_TORCH = 1,     /* torch.name */
    DYCL_AT_METHOD = 2,    /* torch.Tensor.name */
    DYCL_AT_INPLACE = 4,   /* torch.Tensor.name_ (and torch.name_ when TORCH is set and it exists) */
    DYCL_AT_F = 8,         /* torch.nn.functional.name */
    DYCL_AT_NN = 16,       /* torch._C._nn.name */
    DYCL_AT_SPECIAL = 32,  /* torch.special.name */
    DYCL_AT_DUNDER = 64,   /* torch.Tensor.__name__ */
    DYCL_AT_IDUNDER = 128, /* torch.Tensor.__iname__ */
    DYCL_AT_RDUNDER = 256, /* torch.Tensor.__rname__: operands swapped */
    DYCL_AT_LINALG = 512,  /* torch.linalg.name */
    DYCL_AT_VF = 1024,     /* torch._VF.name: what a Python function of the same name in torch calls */
    DYCL_AT_RSAME = 2048   /* torch.Tensor.__rname__, whose first operand is self in torch, too */
};

typedef struct dycl_binding {
    const char *name;
    int places;
    const char *parameters; /* names in order, "|" before the keyword-only ones; a method's first is self */
    dycl_bind_fn bind;
    int op;    /* for the binding function */
    int extra; /* for the binding function */
    /* filled at setup: */
    PyObject *names[DYCL_MOST_PARAMETERS]; /* owned, interned */
    int parameter_count, positional_count;
    int whole;          /* torch's gradient is that of the recorded parts (region/track.h) */
    int python;         /* its method is a Python function: takes no other names for its parameters */
    PyObject *callable; /* owned: torch's, of the first place that it was found at; NULL: this torch has it nowhere */
} dycl_binding;

/* p stays unset until the call is parsed: clearing it would cost as much as recording. */
static inline void dycl_call_begin(dycl_call *call, dycl_region *region, PyObject *const *args, Py_ssize_t count,
                                   int in_place) {
    call->region = region;
    call->args = args;
    call->count = count;
    call->kwnames = call->kwdict = NULL;
    call->out = NULL;
    call->in_place = in_place;
    call->whole = call->keeps_result = 0;
    call->drawn_from = NULL;
    call->status = DYCL_OK;
    call->recorded = region->site->stats.recorded;
    call->callable = region->calling;
    call->swapped = 0;
    call->before = dycl_called_before(region, args, count);
    call->first_value = region->recorder.graph.value_count;
    call->epoch = region->epoch;
    region->recorder.back = DYCL_BACK_VIEW; /* whatever a call that was given up left */
}

/* What torch's gradient of the operand is, of the view that is built next. */
static inline void dycl_view_back(dycl_region *region, dycl_way_back back) {
    region->recorder.back = region->tracks ? back : DYCL_BACK_VIEW;
}
static inline void dycl_call_back(dycl_call *call, dycl_way_back back) { dycl_view_back(call->region, back); }

/* The first value that the call may have recorded: a result that aliases something older is a view of it. */
static inline uint32_t dycl_call_first(const dycl_call *call) {
    return call->epoch == call->region->epoch ? call->first_value : 0;
}

/* 1; 0: the call does not fit the parameters (BAIL). */
int dycl_call_parse(dycl_call *call, const dycl_binding *row);

/* Results */
PyObject *dycl_call_bail(dycl_call *call, dycl_bail why); /* NULL, no exception */
/* Lazy tensor, or p[0] rebound when in_place, or bail. A macro because building the node sets the value: C does not say
 * which argument of a function is evaluated first. */
#define dycl_call_finish(call, build, value)                                                                           \
    ((call)->status = (build), dycl_call_finish_value((call), (call)->status, (value)))
/* Where torch makes its result with operators in place, the result's version shows them. Takes the reference, NULL too.
 */
PyObject *dycl_call_written(dycl_call *call, PyObject *result, uint32_t writes);
/* torch's operator answers a view of a tensor that nobody sees (a convolution without batch is squeezed). Takes the
 * reference, NULL too. */
PyObject *dycl_call_as_view(dycl_call *call, PyObject *result);
PyObject *dycl_call_finish_value(dycl_call *call, dycl_status status, uint32_t value);
PyObject *dycl_call_same(dycl_call *call, PyObject *object); /* the operator returns its operand: new reference */

/* Arguments. Each: OK, BAIL (why set) or ERROR (exception set). `o` may be NULL or None where noted. */
dycl_status dycl_call_value(dycl_call *call, PyObject *o, uint32_t *out); /* a tensor */
dycl_status dycl_call_optional_value(dycl_call *call, PyObject *o,
                                     uint32_t *out); /* a tensor, or NULL/None: DYCL_NONE */
dycl_status dycl_call_operand(dycl_call *call, PyObject *o,
                              dycl_operand *out);                      /* a tensor or a Python bool, int, float */
dycl_status dycl_call_int(dycl_call *call, PyObject *o, int64_t *out); /* a Python int (not bool) */
dycl_status dycl_call_int_or(dycl_call *call, PyObject *o, int64_t fallback, int64_t *out); /* NULL/None: fallback */
dycl_status dycl_call_bool_or(dycl_call *call, PyObject *o, int fallback, int *out);
dycl_status dycl_call_f64_or(dycl_call *call, PyObject *o, double fallback,
                             double *out); /* NULL: fallback; None: BAIL, most of torch's functions reject it */
dycl_status dycl_call_ints(dycl_call *call, PyObject *o, int most, int *out_count,
                           int64_t *out); /* int, or list/tuple/torch.Size of ints */
dycl_status dycl_call_pair(dycl_call *call, PyObject *o, int64_t fallback,
                           int64_t out[2]); /* int or a sequence of one or two; NULL/None: fallback twice */
dycl_status dycl_call_dim(dycl_call *call, PyObject *o, int rank,
                          int *out); /* a dimension, wrapped; rank 0 counts as 1 */
dycl_status dycl_call_dtype_or(dycl_call *call, PyObject *o, dycl_dtype fallback,
                               dycl_dtype *out); /* a torch.dtype that we represent; NULL/None: fallback */
int dycl_call_given(PyObject *o);                /* not NULL and not None */
/* A tensor that may need a gradient; NULL: no. */
static inline int dycl_call_needs_gradient(PyObject *o) {
    return o && dycl_is_tensor(o) && dycl_region_needs_gradient(o) != 0;
}
static inline const dycl_value *dycl_call_meta(const dycl_call *call, uint32_t value) {
    return &call->region->recorder.graph.values[value];
}

#define DYCL_CALL_TRY(expr)                                                                                            \
    do {                                                                                                               \
        dycl_status call_status_ = (expr);                                                                             \
        if (__builtin_expect(call_status_ != DYCL_OK, 0)) return dycl_call_finish(call, call_status_, 0);              \
    } while (0)

/* Runs the function of a binding, undisturbed: what is parsed is in the call. */
PyObject *dycl_binding_bind(const dycl_binding *row, dycl_call *call);
/* Runs a binding: records, or returns NULL without exception. */
PyObject *dycl_binding_run(const dycl_binding *row, dycl_call *call);
/* The same for a call as it came; swapped: two operands stand the other way round. */
PyObject *dycl_binding_record(const dycl_binding *row, dycl_region *region, PyObject *const *args, Py_ssize_t count,
                              PyObject *kwnames, PyObject *kwdict, int in_place, int swapped);
/* What was recorded of a tensor that needs a gradient must have torch's gradient: else torch runs it. whole: of the
 * row. Takes the reference, NULL too. */
PyObject *dycl_call_track(dycl_call *call, int whole, PyObject *result);
/* The sizes that values have in common when they are broadcast. Gives the rank. */
int dycl_call_common_sizes(const dycl_call *call, int count, const uint32_t *values, int64_t *sizes);
/* Views among the results keep how they were made (DYCL_VIEW_...). */
void dycl_call_made_views(const dycl_call *call, PyObject *result);
/* Remembers what was called, where the result has a history. */
void dycl_call_note(const dycl_call *call, PyObject *result);
/* What follows each binding function: its results are all there, so what may not wait is computed. */
PyObject *dycl_binding_settle(dycl_call *call, PyObject *result);
/* What torch's linear made of a product shows in the result: its version, and whether it is a view. Takes the
 * reference; value: the result's. */
PyObject *dycl_linear_result(dycl_region *region, PyObject *result, uint32_t value);

/* Tables, one per file; a row with name NULL ends each. */
extern dycl_binding dycl_bindings_elementwise[], dycl_bindings_activation[], dycl_bindings_view[],
    dycl_bindings_parts[], dycl_bindings_move[], dycl_bindings_repeat[], dycl_bindings_reduce[], dycl_bindings_norms[],
    dycl_bindings_softmax[], dycl_bindings_nn[], dycl_bindings_attention[], dycl_bindings_loss[],
    dycl_bindings_distance[], dycl_bindings_window[], dycl_bindings_matmul[], dycl_bindings_create[],
    dycl_bindings_tensor[], dycl_bindings_index[], dycl_bindings_gather[], dycl_bindings_resize[], dycl_bindings_sort[],
    dycl_bindings_write[], dycl_bindings_recurrent[], dycl_bindings_random[], dycl_bindings_scatter[],
    dycl_bindings_values[], dycl_bindings_words[], dycl_bindings_transformer[];

#endif
