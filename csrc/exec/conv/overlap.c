#include "exec/builder/blocked.h"
#include "exec/conv/conv.h"
#include "kern/product.h"

#include <omp.h>
#include <string.h>

/* Transposed convolutions that make few channels, as the last layer of a decoder or a generator does: a product makes
 * what each pixel gives to each place of its window, and where windows overlap these are added up. A kernel whose
 * vectors are channels would leave most of each empty. All lies plain, so that what follows is not reordered. */

#define MOST_CHANNELS 4

typedef struct {
    dycl_conv_desc d;
    dycl_product product; /* of an image: [places of windows and channels, pixels] */
    dycl_ref x, weights, bias, dst, scratch;
    int has_bias, threads;
    size_t parts_bytes, sums_bytes, thread_bytes;
} overlap_args;

static int64_t floor_of(int64_t a, int64_t b) { return a >= 0 ? a / b : -dycl_divided_up(-a, b); }

/* Of a line of the result: columns that are `stride` apart lie side by side, as the pixels that give to them do. */
static int64_t phase_of(const dycl_conv_desc *d) { return dycl_divided_up(d->ow, d->stride[1]); }

/* What the places of one line of windows give to a line of the result. parts: of the first place */
static void add_line(const dycl_conv_desc *d, const float *parts, float *sums) {
    const int64_t stride = d->stride[1], phase = phase_of(d);
    for (int64_t x = 0; x < d->kw; x++, parts += d->h * d->w) {
        int64_t first = x * d->dilation[1] - d->pad_before[1], shift = floor_of(first, stride),
                column = first - shift * stride, count = dycl_divided_up(d->ow - column, stride);
        int64_t from = shift < 0 ? -shift : 0, end = count - shift < d->w ? count - shift : d->w;
        float *to = sums + column * phase + shift;
        for (int64_t i = from; i < end; i++) to[i] += parts[i];
    }
}

static void add_plane(const dycl_conv_desc *d, const float *parts, float bias, float *sums, float *to) {
    const int64_t stride = d->stride[1], phase = phase_of(d);
    for (int64_t y = 0; y < d->oh; y++, to += d->ow) {
        memset(sums, 0, (size_t)(stride * phase) * sizeof *sums);
        for (int64_t k = 0; k < d->kh; k++) {
            int64_t line = y + d->pad_before[0] - k * d->dilation[0];
            if (line < 0 || line % d->stride[0] || line / d->stride[0] >= d->h) continue;
            add_line(d, parts + k * d->kw * d->h * d->w + line / d->stride[0] * d->w, sums);
        }
        for (int64_t column = 0; column < stride; column++)
            for (int64_t i = 0, x = column; x < d->ow; i++, x += stride) to[x] = sums[column * phase + i] + bias;
    }
}

static dycl_status overlap_run(const dycl_step *step, dycl_plan *plan) {
    const overlap_args *a = step->args;
    const dycl_conv_desc *d = &a->d;
    const float *x = dycl_at(plan, a->x), *weights = dycl_at(plan, a->weights),
                *bias = a->has_bias ? dycl_at(plan, a->bias) : NULL;
    float *dst = dycl_at(plan, a->dst);
    char *scratch = dycl_at(plan, a->scratch);
    const int64_t pixels = d->h * d->w, plane = d->oh * d->ow;
#pragma omp parallel for schedule(static) num_threads(a->threads) if (a->threads > 1)
    for (int64_t n = 0; n < d->n; n++) {
        char *mine = scratch + (size_t)omp_get_thread_num() * a->thread_bytes;
        float *parts = (float *)mine, *sums = (float *)(mine + a->parts_bytes);
        dycl_product_run(&a->product, weights, x + n * d->c * pixels, NULL, parts, (char *)sums + a->sums_bytes);
        for (int64_t o = 0; o < d->oc; o++)
            add_plane(d, parts + o * d->kh * d->kw * pixels, bias ? bias[o] : 0, sums, dst + (n * d->oc + o) * plane);
    }
    return DYCL_OK;
}

static size_t rounded(int64_t floats) { return ((size_t)floats * sizeof(float) + 63) & ~(size_t)63; }

static dycl_status describe(dycl_builder *b, overlap_args *a) {
    const dycl_conv_desc *d = &a->d;
    const int64_t places = d->oc * d->kh * d->kw, pixels = d->h * d->w;
    a->product = (dycl_product){.kernel = dycl_kern_gemm(dycl_cpu_isa()),
                                .m = places,
                                .n = pixels,
                                .k = d->c,
                                .a_row = 1,
                                .a_column = places,
                                .b_row = pixels,
                                .b_column = 1,
                                .c_row = pixels};
    dycl_product_divide(&a->product, 1);
    a->parts_bytes = rounded(places * pixels);
    a->sums_bytes = rounded(d->stride[1] * phase_of(d));
    a->thread_bytes = a->parts_bytes + a->sums_bytes + dycl_product_bytes(&a->product);
    a->threads = dycl_conv_cost(d) > 20000 ? b->plan->threads : 1;
    if (a->threads > d->n) a->threads = (int)d->n;
    return dycl_make_scratch(b, a->thread_bytes * (size_t)a->threads, &a->scratch);
}

dycl_status dycl_make_conv_overlap(dycl_builder *b, const dycl_node *node, const dycl_conv_desc *d,
                                   const dycl_conv_args *conv, const dycl_tensor *w) {
    const uint32_t input = dycl_node_operands(&b->program->graph, node)[0];
    dycl_tensor x, target;
    dycl_status status;
    if (!d->transposed || d->groups != 1 || d->oc > MOST_CHANNELS || d->bf16 || !dycl_kern_gemm(dycl_cpu_isa()))
        return DYCL_BAIL;
    overlap_args *a = dycl_plan_alloc(b->plan, sizeof *a);
    if (!a) return DYCL_ERROR;
    DYCL_TRY(dycl_make_operand_plain(b, input));
    DYCL_TRY(dycl_make_contiguous(b, input, &x));
    DYCL_TRY(dycl_make_target(b, node->out, &target));
    a->d = *d;
    a->x = x.ref;
    a->weights = w->ref;
    a->bias = conv->bias;
    a->has_bias = conv->has_bias;
    a->dst = target.ref;
    dycl_make_read(b, &x);
    dycl_make_read(b, w);
    if (a->has_bias) dycl_make_read_at(b, a->bias, (size_t)d->oc * sizeof(float));
    dycl_make_write(b, &target);
    DYCL_TRY(describe(b, a));
    DYCL_TRY(dycl_make_step(b, overlap_run, a, "overlapping windows", dycl_conv_cost(d) / a->threads));
    return dycl_make_finish(b, node->out, &target);
fail:
    return status;
}
