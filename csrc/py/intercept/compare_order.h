/* How Python came to ask a comparison slot. `plain > lazy` reaches the lazy tensor first, as the subclass, and with the
 * operator mirrored: the very arguments of `lazy < plain`. The order of the operands shows in the result (strides where
 * the operands' layouts leave them open, errors), so the slot tells the two apart by where it returns to:
 * PyObject_RichCompare calls the slots of its left and of its right operand at two places, which are found at import by
 * two comparisons. A place that is none of them (x.__lt__(y), a build of Python that has further copies) is
 * DYCL_ASKED_OTHERWISE, and the order is taken as given.
 *
 * Threads: GIL held. */
#ifndef DYCL_PY_INTERCEPT_COMPARE_ORDER_H
#define DYCL_PY_INTERCEPT_COMPARE_ORDER_H

#include "py/torch/state.h"

typedef enum { DYCL_ASKED_OTHERWISE, DYCL_ASKED_LEFT, DYCL_ASKED_RIGHT } dycl_asked;

#define DYCL_ASKED_WAYS                                                                                                \
    2 /* by the interpreter's instruction, by PyObject_RichCompare: link-time optimisation may give the first its own  \
         copy */
extern const void *dycl_asked_places[2][DYCL_ASKED_WAYS]; /* of the left operand, of the right one, before the left was
                                                             asked; NULL: unknown */

int dycl_asked_setup(void); /* 0, or -1 with an exception */

static inline dycl_asked dycl_asked_from(const void *return_address) {
    for (int i = 0; i < DYCL_ASKED_WAYS; i++) {
        if (return_address == dycl_asked_places[1][i]) return DYCL_ASKED_RIGHT;
        if (return_address == dycl_asked_places[0][i]) return DYCL_ASKED_LEFT;
    }
    return DYCL_ASKED_OTHERWISE;
}

#endif
