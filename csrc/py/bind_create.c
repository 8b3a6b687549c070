/* Tensors made from nothing: arange, zeros, full and their like. */
#include "py/call.h"

dycl_binding dycl_bindings_create[] = {
    {0},
};
