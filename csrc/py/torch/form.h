/* What torch's operators answer: dtype, sizes and strides of their results, learned from torch once for each kind of
 * call and known from then on. The kind is the operator, the dtypes, sizes and strides of its operands and its other
 * arguments; rules of our own would have to repeat torch's, down to the strides of dimensions of size 1.
 *
 * Ownership: forms live until the table is full, then all are learned again. Threads: GIL held. */
#ifndef DYCL_PY_TORCH_FORM_H
#define DYCL_PY_TORCH_FORM_H

#include "ir/hosted.h"
#include "py/torch/state.h"

#define DYCL_FORM_WORDS    224
#define DYCL_FORM_OPERANDS 8

typedef struct {
    int count;
    int64_t words[DYCL_FORM_WORDS];
} dycl_form_key;

typedef struct {
    dycl_dtype dtype;
    int rank, view; /* view: it is one, of a tensor that nobody sees */
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
} dycl_form_result;

typedef struct {
    int results;     /* 0: what torch answers cannot be recorded (an operand, a view of one, another kind of tensor) */
    PyObject *type;  /* owned: of the object that holds several results; NULL: one tensor */
    uint32_t writes; /* the version of a result */
    int gradient;    /* of a call with a history: 1: there is a formula for it; -1: there is none; 0: not known yet */
    dycl_form_result result[DYCL_HOSTED_RESULTS];
} dycl_form;

/* The key of a call: its operands are values of the graph. 0: too many operands. */
enum {
    DYCL_FORM_IN_PLACE = 1,
    DYCL_FORM_INFERENCE = 2,  /* inference mode, where versions are not counted */
    DYCL_FORM_NO_ONEDNN = 4,  /* torch.backends.mkldnn is switched off, which changes how convolutions lie */
    DYCL_FORM_ONE_THREAD = 8, /* of torch's: so does that */
    DYCL_FORM_HISTORY = 16,   /* an operand has one, and gradients are enabled: some functions then take another way */
    DYCL_FORM_VARIANT = 32,   /* and its multiples, below 256 */
    DYCL_FORM_OPERAND = 256,  /* the first operand has a history; the others have the bits above it */
    DYCL_FORM_DOUBLE = DYCL_FORM_OPERAND << DYCL_FORM_OPERANDS /* the default dtype is float64 */
};
int dycl_form_key_of(const dycl_graph *graph, dycl_op op, int flags, int operand_count, const uint32_t *operands,
                     int word_count, const int64_t *words, dycl_form_key *out);
dycl_form *dycl_form_find(const dycl_form_key *key); /* NULL: not known yet */

/* A call that torch runs to be learned from; owned by who runs it. In place: the first argument is what is written. */
typedef struct dycl_lesson {
    dycl_form_key key;
    int flags;
    uint32_t version; /* of the first argument before the call */
} dycl_lesson;

/* The arguments are plain when this is called. Takes the lesson (NULL: nothing to learn). */
void dycl_lesson_begin(dycl_lesson *lesson, PyObject *const *args, Py_ssize_t count);
void dycl_lesson_end(dycl_lesson *lesson, PyObject *result, PyObject *const *args, Py_ssize_t count,
                     PyObject *kwdict); /* result NULL: it raised */

#endif
