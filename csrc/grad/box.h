/* Where a view lies in what it is a part of (internal to grad/). */
#ifndef DYCL_GRAD_BOX_H
#define DYCL_GRAD_BOX_H

#include "ir/graph.h"

/* A box with the root's dimensions. */
typedef struct {
    int64_t start[DYCL_MAX_RANK], size[DYCL_MAX_RANK];
    int dim[DYCL_MAX_RANK]; /* of the view; -1: it has none, its size is 1 */
} dycl_box;

/* 0: it is none. Of what has no elements: all of it, or no box. The view's offset is from the root's first element. */
int dycl_box_of(const dycl_value *root, const dycl_value *view, dycl_box *out);
int dycl_box_is_whole(const dycl_value *root, const dycl_box *at);
/* How a gradient of the view lies that is shown with the root's order of dimensions. */
void dycl_box_turned(const dycl_value *root, const dycl_box *at, const dycl_value *gradient, int64_t *strides);
int dycl_boxes_are_apart(int rank, const dycl_box *a, const dycl_box *b);

#endif
