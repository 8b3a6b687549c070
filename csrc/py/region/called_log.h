/* The calls that are kept, for called.c, name.c and view.c.
 *
 * Ownership: as said at the fields. Threads: GIL held. */
#ifndef DYCL_PY_REGION_CALLED_LOG_H
#define DYCL_PY_REGION_CALLED_LOG_H

#include "py/region/called.h"

/* An argument is one word: an object, a value, or how many words of a list follow. A tensor that is no operand, as only
 * its looks are asked for (`x.to(other)`), is its dtype and rank, and a word for each size and stride. */
enum {
    DYCL_WORD_OBJECT,
    DYCL_WORD_VALUE,
    DYCL_WORD_UNKNOWN,
    DYCL_WORD_LIST,
    DYCL_WORD_TUPLE,
    DYCL_WORD_LOOKS,
    DYCL_WORD_SIZE,
    DYCL_WORD_TAG = 7
};

typedef struct {
    PyObject *callable;     /* borrowed; NULL: there was no call, only a name */
    PyObject *name;         /* owned: that name, or NULL */
    PyObject *names, *made; /* owned: names of the last arguments, or NULL; what a view's function answered */
    uint32_t first, count;  /* words */
    uint32_t positional;    /* arguments without a name */
    int in_place;           /* its result is its first operand */
} dycl_called;

struct dycl_called_log {
    dycl_called *calls;
    uint64_t *words;
    uint32_t *by; /* by value: which call it was, +1, and which of its results */
    uint32_t *nth;
    uint32_t count, room, word_count, word_room, by_room, nth_room, by_count;
};
typedef struct dycl_called_log dycl_called_log;

/* dycl._names' and dycl._autograd's functions. Owned; NULL: gradients are not recorded. */
typedef struct {
    PyObject *name, *operand, *view, *show;
} dycl_called_functions;
extern dycl_called_functions dycl_called_python;

/* (args, kwargs) of a call, for another one. self: the first operand instead of a stand-in, or NULL; bare: stand-ins
 * have no memory. New reference, or NULL with an exception. */
PyObject *dycl_called_arguments(const dycl_region *region, const dycl_called *call, PyObject *self, int bare);
/* What torch says of a result's node: (name, which output), or None. New reference, or NULL with an exception. */
PyObject *dycl_called_name(dycl_region *region, uint32_t index, uint32_t nth);

#endif
