#include "base/dtype.h"

static const struct {
    size_t size;
    const char *name, *torch_name;
} rows[] = {
#define DYCL_ROW(e, c, n, t) {sizeof(c), n, t},
    DYCL_DTYPES(DYCL_ROW)
#undef DYCL_ROW
};

size_t dycl_dtype_size(dycl_dtype dtype) { return rows[dtype].size; }
const char *dycl_dtype_name(dycl_dtype dtype) { return rows[dtype].name; }
const char *dycl_dtype_torch_name(dycl_dtype dtype) { return rows[dtype].torch_name; }
