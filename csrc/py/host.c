#define _GNU_SOURCE
#include "py/host.h"

#include <dlfcn.h>
#include <string.h>

#include "base/host.h"
#include "py/abi.h"

static struct {
    int32_t (*from_blob)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t, dycl_handle *, int32_t, const uint8_t *, int64_t);
    int32_t (*sort)(dycl_handle, int32_t *, int64_t, int32_t, dycl_handle *, dycl_handle *);
    int32_t (*topk)(dycl_handle, int64_t, int64_t, int32_t, int32_t, dycl_handle *, dycl_handle *);
    int32_t (*histc)(dycl_handle, int64_t, double, double, dycl_handle *);
} torch;

/* A tensor over the memory; it lives for one call. */
static dycl_handle borrow(const dycl_host_tensor *x) {
    int64_t strides[DYCL_MAX_RANK];
    dycl_handle handle = NULL;
    dycl_strides_contiguous(x->rank, x->sizes, strides);
    return torch.from_blob(x->data, x->rank, x->sizes, strides, 0, dycl_abi_torch_dtype(x->dtype), 0, 0, &handle, 0, NULL, 0) ? NULL : handle;
}

/* Takes what torch made (`unwanted` too) into `out`. */
static dycl_status take(dycl_handle x, dycl_handle wanted, dycl_handle unwanted, int failed, void *out) {
    dycl_tensor_view view;
    dycl_status status = DYCL_OK;
    if (failed || !wanted || !dycl_abi_read(wanted, &view)) {
        status = dycl_error_set("torch's kernel failed");
    } else {
        size_t bytes = dycl_dtype_size(view.dtype);
        for (int i = 0; i < view.rank; i++) bytes *= (size_t)view.sizes[i];
        memcpy(out, view.data, bytes);
    }
    if (wanted) dycl_abi_delete(wanted);
    if (unwanted) dycl_abi_delete(unwanted);
    if (x) dycl_abi_delete(x);
    return status;
}

static dycl_status argsort(const dycl_host_tensor *x, int64_t dim, int descending, int stable, int64_t *out) {
    dycl_handle tensor = borrow(x), values = NULL, positions = NULL;
    int32_t flag = stable;
    int failed = !tensor || torch.sort(tensor, &flag, dim, descending, &values, &positions);
    return take(tensor, positions, values, failed, out);
}

static dycl_status argtopk(const dycl_host_tensor *x, int64_t dim, int64_t k, int largest, int sorted, int64_t *out) {
    dycl_handle tensor = borrow(x), values = NULL, positions = NULL;
    int failed = !tensor || torch.topk(tensor, k, dim, largest, sorted, &values, &positions);
    return take(tensor, positions, values, failed, out);
}

static dycl_status histc(const dycl_host_tensor *x, int64_t bins, double low, double high, float *out) {
    dycl_handle tensor = borrow(x), counts = NULL;
    int failed = !tensor || torch.histc(tensor, bins, low, high, &counts);
    return take(tensor, counts, NULL, failed, out);
}

void dycl_host_setup(void) {
    *(void **)&torch.from_blob = dycl_abi_symbol("aoti_torch_create_tensor_from_blob_v2");
    *(void **)&torch.sort = dycl_abi_symbol("aoti_torch_cpu_sort_stable");
    *(void **)&torch.topk = dycl_abi_symbol("aoti_torch_cpu_topk");
    *(void **)&torch.histc = dycl_abi_symbol("aoti_torch_cpu_histc");
    if (!torch.from_blob) return;
    dycl_host_functions.argsort = torch.sort ? argsort : NULL;
    dycl_host_functions.argtopk = torch.topk ? argtopk : NULL;
    dycl_host_functions.histc = torch.histc ? histc : NULL;
}
