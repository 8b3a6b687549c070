/* SIMD kernels. One body per family, compiled for each set of instructions in base/isa.def, chosen at run time.
 *
 * Ownership: a kernel never allocates, never locks, never looks at the CPU; every pointer is borrowed for the call.
 *
 * Threads: kernels are pure; the parallel drivers at the end of this file use OpenMP inside.
 * Accuracy: f32 elementary functions stay within 2 ulp (tanh 2.5, activations 2 to 4) of the correctly rounded result
 * (subnormals and infinities included, NaN propagates); f64 ones are libm's, activations composed of them. Tests state
 * and check it. */
#ifndef DYCL_KERN_KERN_H
#define DYCL_KERN_KERN_H

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/status.h"

#define DYCL_MAX_RANK 8

typedef enum {
#define DYCL_KERN_EW(name, n, classes, result) DYCL_EW_##name,
#include "kern/kern.def"
#undef DYCL_KERN_EW
    DYCL_EW_COUNT
} dycl_ew;

/* ---- Elementwise over a contiguous run
 * dst[i] = op(a[i], b[i], c[i]) for i < n. Unused operands are NULL. dst may equal a, b or c exactly (no partial
 * overlap) when the element sizes agree. An operand whose bit in `scalars` is set points to ONE element, used for every
 * i. Any alignment is accepted. n may be 0. */
typedef void (*dycl_ew_fn)(void *dst, const void *a, const void *b, const void *c, size_t n);

/* NULL when there is no such kernel. dtype: that of the last operand. Every scalars mask with at least one clear bit
 * (bit 0 = a) is served; unary kernels take mask 0 only. */
dycl_ew_fn dycl_kern_ew(dycl_isa isa, dycl_ew op, dycl_dtype dtype, unsigned scalars);
const char *dycl_ew_name(dycl_ew op);
int dycl_ew_arity(dycl_ew op);
/* Bit per dtype of the last operand: whether there is a kernel (floats of 16 bits: that of f32). */
extern const uint16_t dycl_ew_dtypes[DYCL_EW_COUNT];
int dycl_ew_result_is_bool(dycl_ew op);

/* Two operators that have a kernel as one. */
typedef struct {
    dycl_ew both, first, second;
} dycl_ew_pair;
const dycl_ew_pair *dycl_ew_pair_of(dycl_ew op);                      /* NULL: it is none */
const dycl_ew_pair *dycl_ew_pair_find(dycl_ew first, dycl_ew second); /* NULL: they have none */

/* Conversion between any two dtypes with C/torch semantics (float to int truncates; to bool: != 0). */
dycl_ew_fn dycl_kern_cast(dycl_isa isa, dycl_dtype from, dycl_dtype to);
/* Floats rounded to what a float of 16 bits holds; dst may be a. */
dycl_ew_fn dycl_kern_round(dycl_isa isa, dycl_dtype half);
/* dst[i] = a[i] + b[i] rounded: sums in f32, and a bias that is as the result, or NULL. */
dycl_ew_fn dycl_kern_finish(dycl_isa isa, dycl_dtype half);

/* ---- Reductions of one contiguous row to one element */
typedef enum {
    DYCL_RED_SUM, /* f32: SIMD partial sums, error like torch's cascade: accumulate blocks of <= 4096, then pairwise or
                     in f64 */
    DYCL_RED_PROD,
    DYCL_RED_AMAX, /* NaN wins */
    DYCL_RED_AMIN,
    DYCL_RED_ALL, /* any dtype -> bool */
    DYCL_RED_ANY,
    DYCL_RED_ARGMAX, /* -> i64; first maximum; first NaN wins */
    DYCL_RED_ARGMIN,
    DYCL_RED_VAR, /* divided by n - *(double *)operand, never less than 0; rounded once, so that no f32 overflows on the
                     way */
    DYCL_RED_STD, /* its root, before it is rounded */
    DYCL_RED_SUMSQ,
    DYCL_RED_SUMABS,
    DYCL_RED_COUNT
} dycl_red;

/* out: one element. operand: NULL, or the correction (VAR, STD). n >= 1, or n == 0 where an identity exists (0, 1,
 * true, false). */
typedef void (*dycl_red_fn)(void *out, const void *a, const void *operand, size_t n);
dycl_red_fn dycl_kern_red(dycl_isa isa, dycl_red op,
                          dycl_dtype dtype); /* SUM/PROD/AMAX/AMIN: all dtypes but bool sums */
dycl_dtype dycl_red_result(dycl_red op, dycl_dtype dtype);
/* The sum of a sum's parts, f32 or f64; divisor: of a mean, 0: none. */
void dycl_kern_add_parts(dycl_dtype dtype, void *sum, const void *parts, int64_t count, double divisor);

/* ---- Row operators: a whole contiguous row in, a whole row out */
typedef enum {
    DYCL_ROW_SOFTMAX,          /* a */
    DYCL_ROW_LOG_SOFTMAX,      /* a */
    DYCL_ROW_LAYER_NORM,       /* a, b = weight row or NULL, c = bias row or NULL, eps; biased variance, two passes */
    DYCL_ROW_RMS_NORM,         /* a, b = weight row or NULL, eps */
    DYCL_ROW_CUMSUM,           /* a */
    DYCL_ROW_LAYER_NORM_BACK,  /* a = gradient of the normalised row, b = the row, eps: the row's gradient */
    DYCL_ROW_RMS_NORM_BACK,    /* the same */
    DYCL_ROW_SOFTMAX_BACK,     /* a = gradient of the result, b = the result: the operand's gradient */
    DYCL_ROW_LOG_SOFTMAX_BACK, /* the same */
    DYCL_ROW_COUNT
} dycl_row;
/* f32 and f64 (CUMSUM: i64 too). dst may equal a. A row of -inf only gives NaN in softmax, as torch does. */
typedef void (*dycl_row_fn)(void *dst, const void *a, const void *b, const void *c, size_t n, double eps);
dycl_row_fn dycl_kern_row(dycl_isa isa, dycl_row op, dycl_dtype dtype);

/* The same over rows that do not lie along memory: each has n elements a step apart, and `width` rows lie side by
 * side. Around them any space of `rank` dimensions. Strides and steps in elements; dst may equal src where those do
 * too. A parallel driver. */
typedef struct {
    dycl_row op;
    dycl_dtype dtype;
    int threads; /* at most: the scratch is for so many */
    int64_t n, width, dst_step, src_step;
    int rank;
    int64_t sizes[DYCL_MAX_RANK], dst_strides[DYCL_MAX_RANK], src_strides[DYCL_MAX_RANK];
} dycl_row_columns_desc;
int dycl_kern_has_row_columns(dycl_row op, dycl_dtype dtype);
size_t dycl_kern_row_columns_scratch(const dycl_row_columns_desc *desc); /* bytes; 0: none, scratch may be NULL */
void dycl_kern_row_columns(const dycl_row_columns_desc *desc, void *dst, const void *src, void *scratch);

/* ---- Data movement over strided tensors (strides in elements, may be 0 or negative offsets already applied)
 * element: size in bytes (1, 2, 4, 8). All of them are parallel drivers: they use dycl_cpu_threads() when the work is
 * worth it (kern/parallel.h: measured, 128 KiB a thread), and are serial inside a parallel region. */

/* dst[strided] = src[strided] over sizes[rank]; collapses dimensions, tiles 2-D transposes, memcpy where it can. */
void dycl_kern_copy(void *dst, const int64_t *dst_strides, const void *src, const int64_t *src_strides,
                    const int64_t *sizes, int rank, size_t element);
/* A strided run of a tile: dst contiguous, src with a stride in elements (0: broadcast). */
void dycl_kern_gather_run(void *dst, const void *src, int64_t stride, size_t n, size_t element);
/* Whether all are finite and smaller than 2^limit; limit 128: finite. Serial. */
int dycl_kern_all_below(const float *data, size_t n, int limit);
static inline int dycl_kern_all_finite(const float *data, size_t n) { return dycl_kern_all_below(data, n, 128); }
void dycl_kern_fill(void *dst, const void *value, size_t n, size_t element);

/* out[i, :] = table[index[i], :], rows of row_bytes, row stride in bytes. Index i64 or i32. Returns the first bad i
 * (index out of [0, rows)), or -1: nothing outside the table is ever read. Negative indices are bad here; callers wrap
 * them if the operator says so. */
int64_t dycl_kern_take_rows(void *out, const void *table, int64_t rows, size_t row_bytes, int64_t row_stride_bytes,
                            const void *index, dycl_dtype index_dtype, size_t n);

/* out[i...] = from[i... with its place in one dimension replaced by index[i...] of it]: out contiguous, strides in
 * elements. Returns a bad index, the first, (out of [0, limit)), or NULL: nothing outside is ever read. */
typedef struct {
    int rank; /* at least 1 */
    int64_t sizes[DYCL_MAX_RANK];
    int64_t from_strides[DYCL_MAX_RANK], index_strides[DYCL_MAX_RANK]; /* from's: 0 in the dimension of the index */
    int64_t limit, stride;                                             /* of that dimension */
    size_t element;
} dycl_gather_desc;
const int64_t *dycl_kern_gather(const dycl_gather_desc *desc, void *out, const void *from, const int64_t *index);

/* to[i... with its places in some dimensions replaced by what each index has at i...] += from[i...], one after the
 * other in this order where several are added to one element. Strides in elements; to's: 0 where an index goes along.
 * The result is dense, so that of a dimension which no index replaces, each piece is a block of memory or several. */
typedef struct {
    int rank, count; /* rank: at least 1; count: indices */
    dycl_dtype dtype;
    int wraps;     /* negative positions count from the end */
    int64_t skip;  /* this position gets nothing; INT64_MIN: there is none */
    int64_t numel; /* of the result */
    int64_t sizes[DYCL_MAX_RANK], to_strides[DYCL_MAX_RANK], from_strides[DYCL_MAX_RANK];
    int64_t extents[DYCL_MAX_RANK]; /* sizes of the result, at least those of what is added */
    struct {
        int64_t strides[DYCL_MAX_RANK], limit, stride; /* limit, stride: of the dimension that it replaces */
    } index[DYCL_MAX_RANK];
} dycl_add_desc;
size_t dycl_kern_add_scratch(const dycl_add_desc *desc);
/* fill: the number that the result is filled with first; NULL: it is there. Returns a bad index, or NULL: nothing
 * outside is ever written. No operand may lie where the result does. */
const int64_t *dycl_kern_add(const dycl_add_desc *desc, void *to, const void *fill, const void *from,
                             const int64_t *const *index, void *scratch);

/* *low and *high take in n elements. Serial. */
void dycl_kern_extent(const int64_t *data, size_t n, int64_t *low, int64_t *high);

/* Reduction over any set of dimensions of a strided tensor. reduce: bitmask over rank. out is contiguous in the order
 * of the kept dimensions. scratch: dycl_kern_reduce_scratch() bytes, 64-byte aligned. */
typedef struct {
    dycl_red op;
    double correction; /* of VAR and STD: sum (x - mean)^2 / max(0, n - correction), f32 and f64 */
    int mean;          /* 1 with SUM: divide by n */
    dycl_dtype dtype;  /* of the input; bool inputs of SUM were cast before */
    int rank;
    int64_t sizes[DYCL_MAX_RANK], strides[DYCL_MAX_RANK];
    uint32_t reduce;
} dycl_reduce_desc;
size_t dycl_kern_reduce_scratch(const dycl_reduce_desc *desc);
dycl_status dycl_kern_reduce(const dycl_reduce_desc *desc, void *out, const void *in, void *scratch);

/* Images with zeros around them, channels last: dst is [images, above + height + below, left + width + right,
 * channels]; src has strides in the order images, channels, height, width. Writes the rows [begin, end) of the images *
 * (above + height + below); serial. */
typedef struct {
    int64_t images, channels, height, width, above, below, left, right;
} dycl_pad;
static inline int64_t dycl_pad_height(const dycl_pad *p) { return p->above + p->height + p->below; }
static inline int64_t dycl_pad_width(const dycl_pad *p) { return p->left + p->width + p->right; }
static inline int dycl_pad_has_zeros(const dycl_pad *p) { return p->above || p->below || p->left || p->right; }
void dycl_kern_pad(float *dst, const float *src, const int64_t *src_strides, const dycl_pad *pad, int64_t begin,
                   int64_t end);

/* Resampling of planes, one axis after the other, as torch's interpolate does. An axis is `taps` positions of the input
 * and their weights for each position of the output; index and weight hold out * taps elements, and taps is 1
 * (nearest), 2 or 4. */
typedef enum {
    DYCL_RESIZE_NEAREST,
    DYCL_RESIZE_NEAREST_EXACT,
    DYCL_RESIZE_LINEAR,
    DYCL_RESIZE_CUBIC,
    DYCL_RESIZE_COUNT
} dycl_resize_kind;
typedef struct {
    int64_t in, out, taps;
    const int64_t *index;
    const float *weight;
} dycl_resize_axis;
int dycl_kern_resize_taps(dycl_resize_kind kind);
/* scale: of the output to the input; 0: follows from the sizes */
void dycl_kern_resize_axis(dycl_resize_kind kind, int align_corners, int64_t in, int64_t out, double scale,
                           int64_t *index, float *weight);
/* NCHW contiguous f32. scratch: most_threads * taps * x->out floats. */
void dycl_kern_resize2d(float *out, const float *in, int64_t planes, const dycl_resize_axis *y,
                        const dycl_resize_axis *x, float *scratch, int most_threads);

/* Group norm over [n, c, inner] contiguous f32, weight/bias [c] or NULL. */
void dycl_kern_group_norm(float *out, const float *in, const float *weight, const float *bias, int64_t n, int64_t c,
                          int64_t inner, int64_t groups, double eps);

#endif
