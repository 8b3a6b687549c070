#include "exec/builder/builder.h"
#include "ir/infer.h"
#include "kern/parallel.h"

#include <string.h>

/* Floats of 16 bits around steps that know f32 only: operands as copies in f32, and results rounded once, as torch's
 * kernels do it. */

typedef struct {
    dycl_ref to, from;
    dycl_ew_fn cast;
    size_t count, from_element, to_element;
} convert_args;

static dycl_status convert_run(const dycl_step *step, dycl_plan *plan) {
    const convert_args *a = step->args;
    char *to = dycl_at(plan, a->to);
    const char *from = dycl_at(plan, a->from);
    int threads = dycl_kern_threads(a->count * (a->from_element + a->to_element));
    if (threads < 2) {
        a->cast(to, from, NULL, NULL, a->count);
        return DYCL_OK;
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        size_t begin = a->count * (size_t)t / (size_t)threads, end = a->count * (size_t)(t + 1) / (size_t)threads;
        a->cast(to + begin * a->to_element, from + begin * a->from_element, NULL, NULL, end - begin);
    }
    return DYCL_OK;
}

/* Both dense, in one order. */
static dycl_status convert(dycl_builder *b, const dycl_tensor *from, const dycl_tensor *to) {
    convert_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    *a = (convert_args){to->ref,
                        from->ref,
                        dycl_kern_cast(dycl_cpu_isa(), from->dtype, to->dtype),
                        (size_t)dycl_tensor_numel(from),
                        dycl_dtype_size(from->dtype),
                        dycl_dtype_size(to->dtype)};
    uint32_t begun = b->touch_count;
    dycl_make_read(b, from);
    dycl_make_write(b, to);
    return dycl_make_aside(b, begun, convert_run, a, "convert", 20 + 0.1 * (double)a->count);
}

static dycl_status new_tensor(dycl_builder *b, const dycl_tensor *like, dycl_dtype dtype, dycl_tensor *out) {
    *out = *like;
    out->dtype = dtype;
    out->ref.offset = 0;
    return dycl_make_slot(b, (size_t)dycl_tensor_numel(out) * dycl_dtype_size(dtype), &out->ref.slot);
}

dycl_status dycl_make_widened(dycl_builder *b, uint32_t v, dycl_tensor *as) {
    dycl_tensor from = *as;
    dycl_status status;
    int lies = as->ref.slot == dycl_make_ref(b, v).slot;
    if (lies && !dycl_value_dense(dycl_make_value(b, v))) DYCL_TRY(dycl_make_contiguous(b, v, &from));
    DYCL_TRY(new_tensor(b, &from, DYCL_F32, as));
    return convert(b, &from, as);
fail:
    return status;
}

dycl_status dycl_make_computed(dycl_builder *b, uint32_t v, dycl_tensor *out) {
    dycl_make_tensor(b, v, out);
    return dycl_dtype_is_half(out->dtype) ? dycl_make_widened(b, v, out) : DYCL_OK;
}

dycl_status dycl_make_computed_target(dycl_builder *b, uint32_t v, dycl_tensor *out) {
    dycl_tensor like;
    dycl_make_tensor(b, v, &like);
    if (!dycl_dtype_is_half(like.dtype)) return dycl_make_target(b, v, out);
    dycl_strides_contiguous(like.rank, like.sizes, like.strides);
    return new_tensor(b, &like, DYCL_F32, out);
}

dycl_status dycl_make_computed_alike(dycl_builder *b, uint32_t v, dycl_tensor *out) {
    dycl_tensor like;
    dycl_make_tensor(b, v, &like);
    *out = like;
    if (!dycl_dtype_is_half(like.dtype)) return DYCL_OK;
    return dycl_value_dense(dycl_make_value(b, v)) ? new_tensor(b, &like, DYCL_F32, out)
                                                   : dycl_make_computed_target(b, v, out);
}

dycl_status dycl_make_rounded(dycl_builder *b, uint32_t v, const dycl_tensor *target) {
    dycl_tensor to, dense;
    dycl_status status;
    dycl_make_tensor(b, v, &to);
    int alike = dycl_value_dense(dycl_make_value(b, v)) &&
                !memcmp(to.strides, target->strides, (size_t)to.rank * sizeof *to.strides);
    if (alike || dycl_tensor_contiguous(&to)) return convert(b, target, &to);
    DYCL_TRY(new_tensor(b, target, to.dtype, &dense));
    DYCL_TRY(convert(b, target, &dense));
    return dycl_make_copy(b, &dense, &to);
fail:
    return status;
}
