#define _GNU_SOURCE
#include "py/torch/host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/host.h"
#include "kern/kern.h"
#include "py/torch/abi.h"

static struct {
    int32_t (*from_blob)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t, int32_t, int32_t,
                         dycl_handle *, int32_t, const uint8_t *, int64_t);
    int32_t (*sort)(dycl_handle, int32_t *, int64_t, int32_t, dycl_handle *, dycl_handle *);
    int32_t (*topk)(dycl_handle, int64_t, int64_t, int32_t, int32_t, dycl_handle *, dycl_handle *);
    int32_t (*histc)(dycl_handle, int64_t, double, double, dycl_handle *);
    /* operators by name: torch/csrc/stable/c/shim.h. A stack of words takes the arguments and gives the results */
    int32_t (*call)(const char *, const char *, uint64_t *, uint64_t);
    int32_t (*box)(uint64_t **);
    int32_t (*new_list)(size_t, dycl_handle *);
    int32_t (*push)(dycl_handle, uint64_t);
    const char *(*what)(void);
    uint64_t version;
    int32_t (*scatter_reduce)(dycl_handle, dycl_handle, int64_t, dycl_handle, dycl_handle, const char *, int32_t);
} torch;

/* A tensor over the memory; it lives for one call. */
static dycl_handle borrow(const dycl_host_tensor *x) {
    int64_t contiguous[DYCL_MAX_RANK];
    const int64_t *strides = x->strides;
    dycl_handle handle = NULL;
    if (!strides) {
        dycl_strides_contiguous(x->rank, x->sizes, contiguous);
        strides = contiguous;
    }
    return torch.from_blob(x->data, x->rank, x->sizes, strides, 0, dycl_abi_torch_dtype(x->dtype), 0, 0, &handle, 0,
                           NULL, 0)
               ? NULL
               : handle;
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

/* ---- Operators by name */

#define MOST_WORDS 24 /* of a stack */

static uint64_t word_of(dycl_handle handle) { return (uint64_t)(uintptr_t)handle; }

/* 1; 0: no memory. What is optional lies in a box, which torch opens and throws away; None is 0. */
static int boxed(int optional, uint64_t value, uint64_t *out) {
    uint64_t *box = NULL;
    *out = value;
    if (!optional) return 1;
    if (torch.box(&box)) return 0;
    *box = value;
    *out = word_of(box);
    return 1;
}

static int tensor_word(const dycl_host_tensor *tensor, int optional, uint64_t *out) {
    *out = 0;
    if (tensor->rank < 0) return 1;
    dycl_handle handle = borrow(tensor);
    return handle && boxed(optional, word_of(handle), out);
}

static int list_word(const dycl_host_argument *a, uint64_t *out) {
    dycl_handle list = NULL;
    if (torch.new_list((size_t)a->count, &list)) return 0;
    for (int i = 0; i < a->count; i++) {
        uint64_t word;
        if (a->kind != DYCL_HOST_TENSORS)
            word = (uint64_t)a->numbers[i];
        else if (!tensor_word(&a->tensors[i], a->optional, &word))
            return 0;
        if (torch.push(list, word)) return 0;
    }
    return boxed(a->optional && a->kind != DYCL_HOST_TENSORS, word_of(list), out);
}

/* Torch takes everything over when it is called; what is made before a failure of memory is lost. */
static int argument_word(const dycl_host_argument *a, uint64_t *out) {
    *out = 0;
    if (a->count < 0) return 1;
    switch ((dycl_host_kind)a->kind) {
    case DYCL_HOST_TENSOR: return tensor_word(a->tensors, a->optional, out);
    case DYCL_HOST_TENSORS:
    case DYCL_HOST_INTS:
    case DYCL_HOST_FLOATS: return list_word(a, out);
    case DYCL_HOST_WORD: return 0; /* see scatter_reduce */
    case DYCL_HOST_DTYPE: return boxed(a->optional, (uint64_t)dycl_abi_torch_dtype((dycl_dtype)a->numbers[0]), out);
    default: return boxed(a->optional, (uint64_t)a->numbers[0], out);
    }
}

static int result_word(dycl_host_into into, const dycl_host_tensor *out, uint64_t *word) {
    if (into == DYCL_HOST_INTO) return tensor_word(out, 0, word);
    const int64_t none = 0, one = 1;
    *word = word_of(dycl_abi_empty(out->dtype, 1, &none, &one));
    return *word != 0;
}

/* What it has to be was learned from torch: something else is an error. */
static dycl_status put(dycl_handle made, const dycl_host_tensor *out) {
    dycl_tensor_view view;
    if (!dycl_abi_read(made, &view) || view.dtype != out->dtype || view.rank != out->rank ||
        memcmp(view.sizes, out->sizes, (size_t)out->rank * sizeof *out->sizes))
        return dycl_error_bail("the result looks otherwise than before");
    dycl_kern_copy(out->data, out->strides, view.data, view.strides, out->sizes, out->rank,
                   dycl_dtype_size(out->dtype));
    return DYCL_OK;
}

static dycl_status raised(const char *schema) {
    const char *what = torch.what ? torch.what() : NULL;
    return dycl_error_bail("%s: %.200s", schema, what ? what : "an error");
}

/* out, self, dim, index, src, reduce, include_self: a function of its own, as the dispatcher's interface loses the
 * memory of words. */
static dycl_status scatter_reduce(const dycl_host_argument *a, const dycl_host_tensor *out) {
    const dycl_host_tensor *tensors[4] = {out, a[0].tensors, a[2].tensors, a[3].tensors};
    dycl_handle handles[4] = {NULL};
    char word[16] = {0};
    dycl_status status = torch.scatter_reduce && a[4].word_length < (int)sizeof word
                             ? DYCL_OK
                             : dycl_error_set("this torch has no scatter_reduce");
    if (status == DYCL_OK) memcpy(word, a[4].word, (size_t)a[4].word_length);
    for (int i = 0; i < 4 && status == DYCL_OK; i++)
        if (!(handles[i] = borrow(tensors[i]))) status = dycl_error_set("no memory for an argument of scatter_reduce");
    if (status == DYCL_OK && torch.scatter_reduce(handles[0], handles[1], a[1].numbers[0], handles[2], handles[3], word,
                                                  (int32_t)a[5].numbers[0]))
        status = raised("scatter_reduce");
    for (int i = 0; i < 4; i++)
        if (handles[i]) dycl_abi_delete(handles[i]);
    return status;
}

static dycl_status call_by_name(const char *schema, const char *overload, int results, dycl_host_into into,
                                int argument_count, const dycl_host_argument *arguments, const dycl_host_tensor *out) {
    uint64_t stack[MOST_WORDS] = {0};
    char name[96];
    dycl_status status = DYCL_OK;
    if (argument_count + 1 > MOST_WORDS || snprintf(name, sizeof name, "aten::%s", schema) >= (int)sizeof name)
        return dycl_error_set("too many arguments");
    for (int i = 0; i < argument_count && status == DYCL_OK; i++)
        if (!argument_word(&arguments[i], &stack[i]))
            status = dycl_error_set("no memory for an argument of %s", schema);
    if (status == DYCL_OK && into && !result_word(into, out, &stack[argument_count]))
        status = dycl_error_set("no memory for the result of %s", schema);
    if (status == DYCL_OK && torch.call(name, overload, stack, torch.version)) {
        status = raised(schema);
    } else if (status == DYCL_OK) {
        for (int i = 0; i < results; i++) {
            if (status == DYCL_OK && into != DYCL_HOST_INTO && out[i].rank >= 0)
                status = put((dycl_handle)(uintptr_t)stack[i], &out[i]);
            dycl_abi_delete((dycl_handle)(uintptr_t)stack[i]);
        }
    }
    return status;
}

static dycl_status call(const char *schema, const char *overload, int results, dycl_host_into into, int argument_count,
                        const dycl_host_argument *arguments, const dycl_host_tensor *out) {
    dycl_dispatch_state before = dycl_abi_dispatch_enter_kernel();
    dycl_status status = strcmp(schema, "scatter_reduce") == 0
                             ? scatter_reduce(arguments, out)
                             : call_by_name(schema, overload, results, into, argument_count, arguments, out);
    dycl_abi_dispatch_set(&before);
    return status;
}

static void setup_call(void) {
    uint64_t (*version)(void);
    *(void **)&torch.call = dycl_abi_symbol("torch_call_dispatcher");
    *(void **)&torch.box = dycl_abi_symbol("torch_new_stable_ivalue");
    *(void **)&torch.new_list = dycl_abi_symbol("torch_new_list_reserve_size");
    *(void **)&torch.push = dycl_abi_symbol("torch_list_push_back");
    *(void **)&torch.what = dycl_abi_symbol("torch_exception_get_what_without_backtrace");
    *(void **)&torch.scatter_reduce = dycl_abi_symbol("aoti_torch_cpu_scatter_reduce_two_out");
    *(void **)&version = dycl_abi_symbol("aoti_torch_abi_version");
    if (!torch.call || !torch.box || !torch.new_list || !torch.push || !version) return;
    torch.version = version();
    dycl_host_functions.call = call;
}

/* Asked for a product that is known: what has this name may be called otherwise. */
#define FIND_GEMM(letter, type)                                                                                        \
    static dycl_host_##letter##gemm find_##letter##gemm(void) {                                                        \
        dycl_host_##letter##gemm gemm;                                                                                 \
        *(void **)&gemm = dycl_abi_symbol(#letter "gemm_");                                                            \
        const int64_t two = 2, three = 3, one = 1;                                                                     \
        const type a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {1, 10, 100}, alpha = 1, beta = 1;                                \
        type c[2] = {1000, 2000};                                                                                      \
        if (!gemm) return NULL;                                                                                        \
        gemm("N", "N", &two, &one, &three, &alpha, a, &two, b, &three, &beta, c, &two);                                \
        return c[0] == 1531 && c[1] == 2642 ? gemm : NULL;                                                             \
    }
FIND_GEMM(s, float)
FIND_GEMM(d, double)
#undef FIND_GEMM

static dycl_host_dgemv find_dgemv(void) {
    dycl_host_dgemv gemv;
    *(void **)&gemv = dycl_abi_symbol("dgemv_");
    const int64_t two = 2, three = 3, one = 1;
    const double a[6] = {1, 2, 3, 4, 5, 6}, x[5] = {1, 0, 10, 0, 100}, alpha = 1, beta = 1;
    double y[2] = {1000, 2000};
    if (!gemv) return NULL;
    gemv("N", &two, &three, &alpha, a, &two, x, &two, &beta, y, &one);
    return y[0] == 1531 && y[1] == 2642 ? gemv : NULL;
}

void dycl_host_setup(void) {
    *(void **)&torch.from_blob = dycl_abi_symbol("aoti_torch_create_tensor_from_blob_v2");
    *(void **)&torch.sort = dycl_abi_symbol("aoti_torch_cpu_sort_stable");
    *(void **)&torch.topk = dycl_abi_symbol("aoti_torch_cpu_topk");
    *(void **)&torch.histc = dycl_abi_symbol("aoti_torch_cpu_histc");
    dycl_host_functions.sgemm = find_sgemm();
    dycl_host_functions.dgemm = find_dgemm();
    dycl_host_functions.dgemv = find_dgemv();
    if (!torch.from_blob) return;
    dycl_host_functions.argsort = torch.sort ? argsort : NULL;
    dycl_host_functions.argtopk = torch.topk ? argtopk : NULL;
    dycl_host_functions.histc = torch.histc ? histc : NULL;
    setup_call();
}
