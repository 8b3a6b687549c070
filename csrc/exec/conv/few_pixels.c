#include "exec/conv/few_pixels.h"

#include <string.h>

/* Offered where the weights are what takes the time: they change from run to run, are more than the second cache holds,
 * and have few pixels to be multiplied with. With more pixels packed weights are used often enough. */

#define MOST_PIXELS 128

struct dycl_conv_few {
    dycl_few_pixels few;
    int back;
    dycl_pad lies; /* back: the image, which is copied if its channels are not last; no zeros */
    dycl_ref copied, work;
};

int dycl_conv_has_few_pixels(const dycl_builder *b, const dycl_conv_desc *d, const dycl_conv_args *conv) {
    int64_t pixels = d->n * (d->transposed ? d->h * d->w : d->oh * d->ow), places = d->kh * d->kw;
    return b->plan->mode == DYCL_PLAN_TUNED && dycl_make_may_pack(b) && d->groups == 1 && !d->bf16 &&
           !conv->has_scale && pixels <= MOST_PIXELS && places > 1 && places <= DYCL_FEW_PIXELS_PLACES && d->c >= 8 &&
           d->oc >= 8 && d->c * d->oc * places * (int64_t)sizeof(float) > dycl_cpu_cache() / 2;
}

/* Transposed: that of which it is the gradient. */
static dycl_windows back_of(const dycl_conv_desc *d) {
    return (dycl_windows){.images = d->n,
                          .channels = d->oc,
                          .height = d->oh,
                          .width = d->ow,
                          .out_height = d->h,
                          .out_width = d->w,
                          .window = {d->kh, d->kw},
                          .stride = {d->stride[0], d->stride[1]},
                          .dilation = {d->dilation[0], d->dilation[1]}};
}

dycl_status dycl_make_few_pixels(dycl_builder *b, const dycl_conv_desc *d, int threads, dycl_conv_few **out) {
    dycl_status status;
    dycl_pad pad = {.images = d->n, .channels = d->c, .height = d->h, .width = d->w};
    dycl_conv_few *few = dycl_plan_alloc(b->plan, sizeof *few);
    *out = NULL;
    if (!few) return DYCL_ERROR;
    few->back = d->transposed;
    if (!few->back && !dycl_conv_pad(d, &pad)) return DYCL_OK;
    few->lies = pad;
    few->few = (dycl_few_pixels){.kernel = dycl_kern_gemm(dycl_cpu_isa()),
                                 .windows = few->back ? back_of(d) : dycl_conv_windows(d, &pad),
                                 .outputs = few->back ? d->c : d->oc,
                                 .before = {d->pad_before[0], d->pad_before[1]},
                                 .threads = threads};
    if (few->back) DYCL_TRY(dycl_make_scratch(b, (size_t)(d->n * d->h * d->w * d->c) * sizeof(float), &few->copied));
    DYCL_TRY(dycl_make_scratch(b, few->back ? dycl_few_pixels_back_bytes(&few->few) : dycl_few_pixels_bytes(&few->few),
                               &few->work));
    *out = few;
    return DYCL_OK;
fail:
    return status;
}

/* The image with its channels last. */
static const float *pixels_of(const dycl_conv_few *few, dycl_plan *plan, const float *src, const int64_t *strides) {
    const dycl_pad *p = &few->lies;
    const int64_t last[4] = {p->height * p->width * p->channels, 1, p->width * p->channels, p->channels};
    if (!memcmp(strides, last, sizeof last)) return src;
    float *to = dycl_at(plan, few->copied);
    dycl_kern_pad(to, src, strides, p, 0, p->images * p->height);
    return to;
}

void dycl_few_pixels_step(const dycl_conv_few *few, dycl_plan *plan, const float *src, const int64_t *strides,
                          const float *weights, const dycl_gemm_finish *finish, float *dst) {
    char *work = dycl_at(plan, few->work);
    if (few->back)
        dycl_few_pixels_back(&few->few, pixels_of(few, plan, src, strides), weights, finish, dst, work);
    else
        dycl_few_pixels_run(&few->few, src, strides, weights, finish, dst, work);
}
