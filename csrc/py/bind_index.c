/* Indexing and gathering. */
#include "py/call.h"

dycl_binding dycl_bindings_index[] = {
    {0},
};
