/* How Python came to ask a comparison slot. `plain > lazy` reaches the lazy tensor first, as the subclass, and with the
 * operator mirrored: the very arguments of `lazy < plain`. The order of the operands shows in the result (strides where
 * the operands' layouts leave them open, errors), so the slot tells the two apart by where it returns to:
 * PyObject_RichCompare calls the slots of its left and of its right operand at two places, which are found at import by
 * two comparisons. A place that is none of them (x.__lt__(y), a build of Python that has further copies) is
 * DYCL_COMPARE_OTHERWISE, and the order is taken as given.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_COMPARE_ORDER_H
#define DYCL_PY_INTERCEPT_COMPARE_ORDER_H

#include "py/torch/state.h"

typedef enum { DYCL_COMPARE_OTHERWISE, DYCL_COMPARE_AS_LEFT, DYCL_COMPARE_AS_RIGHT } dycl_compare_order;

#define DYCL_COMPARE_CALLERS                                                                                           \
    2 /* by the interpreter's instruction, by PyObject_RichCompare: link-time optimisation may give the first its own  \
         copy */
extern const void *dycl_compare_places[2][DYCL_COMPARE_CALLERS]; /* of the left operand, of the right one, before the
                                                             left was asked; NULL: unknown */

int dycl_compare_order_setup(void); /* 0, or -1 with an exception */

static inline dycl_compare_order dycl_compare_order_from(const void *return_address) {
    for (int i = 0; i < DYCL_COMPARE_CALLERS; i++) {
        if (return_address == dycl_compare_places[1][i]) return DYCL_COMPARE_AS_RIGHT;
        if (return_address == dycl_compare_places[0][i]) return DYCL_COMPARE_AS_LEFT;
    }
    return DYCL_COMPARE_OTHERWISE;
}

#endif
