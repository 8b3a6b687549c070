/* Properties, conversions and reads of one tensor. */
#include "py/call.h"

dycl_binding dycl_bindings_tensor[] = {
    {0},
};
