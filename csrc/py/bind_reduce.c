/* Reductions, softmax and running sums. */
#include "py/call.h"

#define ROW(name, places, parameters, function, op, extra) {name, places, parameters, function, op, extra, {0}, 0, 0}

dycl_binding dycl_bindings_reduce[] = {
    {0},
};
