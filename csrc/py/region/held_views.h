/* Views with a history that the program holds while further results come from them. In torch a view has a node, and
 * what is computed from it goes back through that: the program may hook the view, or ask for its gradient. So such a
 * view stands between nodes (track_flush.h), as a result does. Its tensor is torch's view of the computed one, made
 * before the nodes of what the program computed later: autograd goes back in the order in which nodes were made.
 *
 * Ownership: views and tensors are the struct's. Threads: GIL held; making a view may let other threads run. */
#ifndef DYCL_PY_REGION_HELD_VIEWS_H
#define DYCL_PY_REGION_HELD_VIEWS_H

#include "py/region/region.h"

typedef struct {
    struct dycl_held_view {
        PyObject *object;   /* owned: the lazy tensor */
        uint32_t value;     /* a view, or what torch's operator answers as one */
        dycl_handle tensor; /* owned; NULL: not made yet */
    } * views;
    uint32_t *place;              /* owned: by value, which of them it is, +1; or 0 */
    uint32_t count, values, made; /* made: those of values before it are */
} dycl_held_views;

/* OK, or ERROR (no memory). */
dycl_status dycl_held_views_find(const dycl_region *region, dycl_held_views *out);
void dycl_held_views_free(dycl_region *region, dycl_held_views *h);
int dycl_held_views_has(const dycl_held_views *h, uint32_t value);
/* Borrowed; NULL without an exception: the value is none of them. What the value is a view of has its history. */
dycl_handle dycl_held_views_tensor(dycl_region *region, dycl_held_views *h, uint32_t value);
/* Those of values before this one, in the order of the program. 0, or -1 with an exception. */
int dycl_held_views_make(dycl_region *region, dycl_held_views *h, uint32_t before);
/* Whether this very object is one of them. */
int dycl_held_views_of(const dycl_held_views *h, const dycl_lazy *lazy);

#endif
