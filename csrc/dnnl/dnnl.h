/* oneDNN behind one small interface: primitives are made from plain descriptors, cached, shared and executed without
 * the GIL.
 *
 * Ownership: a dycl_prim is reference counted (dycl_prim_release); the cache holds its own reference, bounded (LRU).
 *
 * Threads: creation is locked inside; a dycl_prim is immutable and may execute in several threads at once. Each thread
 * has its own stream. Scratch memory is the caller's (user-mode scratchpad), so executing allocates nothing of ours in
 * the steady state.
 * Only csrc/dnnl sees oneDNN's headers; the rest of dycl sees this file. Everything is f32, in strict precision, unless
 * a descriptor says bf16. */
#ifndef DYCL_DNNL_DNNL_H
#define DYCL_DNNL_DNNL_H

#include "base/dtype.h"
#include "base/status.h"

#define DYCL_DNNL_MAX_RANK 6
#define DYCL_MAX_POST_OPS  8

dycl_status dycl_dnnl_init(void);    /* once; ERROR when the library is older than 3.2 or has no CPU engine */
const char *dycl_dnnl_version(void); /* "3.2.0" */

/* A tensor's memory as oneDNN sees it. Plain layouts are sizes + strides (elements); opaque ones (blocked) carry
 * oneDNN's name of it. Compare with dycl_layout_equal (strides of size-1 dimensions do not count). A layout is a
 * value: copy it freely. */
typedef struct {
    int rank;
    int64_t sizes[DYCL_DNNL_MAX_RANK], strides[DYCL_DNNL_MAX_RANK]; /* strides are meaningless when opaque */
    int opaque;   /* 1: blocked, see tag; 2: "as the destination" (post-op operands only) */
    uint64_t tag; /* identity of an opaque layout: a format tag or an interned descriptor */
} dycl_layout;
int dycl_layout_equal(const dycl_layout *a, const dycl_layout *b);
size_t dycl_layout_bytes(const dycl_layout *layout); /* padding of blocked layouts included */
/* 1 when a blocked layout pads a dimension: elementwise kernels must not run over it. */
int dycl_layout_padded(const dycl_layout *layout);
/* Whether oneDNN can describe it: no two elements share memory. Others have to be copied first. */
int dycl_layout_describable(const dycl_layout *layout);
void dycl_layout_plain(dycl_layout *out, int rank, const int64_t *sizes, const int64_t *strides);

typedef enum {
    DYCL_POST_RELU,
    DYCL_POST_GELU,
    DYCL_POST_GELU_TANH,
    DYCL_POST_TANH,
    DYCL_POST_SIGMOID,
    DYCL_POST_SILU,
    DYCL_POST_CLAMP, /* to [alpha, beta] */
    DYCL_POST_HARDSWISH,
    DYCL_POST_LEAKY_RELU, /* slope alpha */
    /* Binary, with a tensor operand that broadcasts to dst. */
    DYCL_POST_ADD,
    DYCL_POST_MUL,
    DYCL_POST_SUB,
    DYCL_POST_DIV,
    DYCL_POST_MAX,
    DYCL_POST_MIN,
    DYCL_POST_SUM /* dst += : dst holds the addend before the call */
} dycl_post_kind;
typedef struct {
    dycl_post_kind kind;
    float alpha, beta;
    dycl_layout operand; /* binary kinds: rank as dst, sizes 1 where broadcast; may be opaque (equal to dst's layout) */
} dycl_post_op;
typedef struct {
    int count;
    dycl_post_op op[DYCL_MAX_POST_OPS];
} dycl_post_ops;

/* ---- Without a primitive: row-major C[m,n] = alpha * op(A)[m,k] op(B)[k,n] + beta * C; lda etc. in elements.
 * Safe inside a parallel region (then single-threaded). */
dycl_status dycl_sgemm(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                       int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

typedef struct dycl_prim dycl_prim;

typedef struct {
    int batch_rank;   /* 0..4 leading dimensions */
    int64_t batch[4]; /* of dst; A and B strides are 0 where they broadcast */
    int64_t m, n, k;
    /* batch..., row, column; in elements; any with one unit stride in the last two */
    int64_t a_strides[6], b_strides[6], c_strides[6];
    int bias;   /* 1: a contiguous [n] vector is added */
    int bf16;   /* 1: A is bfloat16, and B becomes it when it is packed (pack_b); C and bias are f32 */
    int half;   /* 1: everything in memory is bfloat16; sums are f32 */
    int pack_b; /* 1: B is constant: let oneDNN choose its layout (batch_rank 0 only) */
    dycl_post_ops post;
} dycl_matmul_desc;

typedef struct {
    int64_t n, c, h, w, oc, kh, kw, oh,
        ow;                         /* NCHW; weights OIHW contiguous with groups in c/groups; transposed: IOHW */
    int64_t stride[2], dilation[2]; /* dilation 1 = dense (torch's convention) */
    int64_t pad_before[2], pad_after[2], groups;
    int bias;
    int any_src, any_dst; /* 1: oneDNN chooses the layout; else src/dst below */
    dycl_layout src, dst;
    dycl_post_ops post; /* operands of binary ops may have `opaque = 2`: the same layout as dst */
    int bf16;           /* 1: may multiply in bfloat16, where that is faster; everything in memory stays f32 */
    int winograd;       /* 1: ask for Winograd (may bail) */
    int transposed; /* 1: the gradient of a convolution with these windows: src is what that one makes (no post-ops) */
} dycl_conv_desc;

typedef enum { DYCL_POOL_MAX, DYCL_POOL_AVG_PADDED /* count_include_pad */, DYCL_POOL_AVG } dycl_pool_kind;
typedef struct {
    dycl_pool_kind kind;
    int64_t n, c, h, w, oh, ow, kernel[2], stride[2], dilation[2], pad_before[2], pad_after[2];
    dycl_layout src; /* plain or opaque; dst is chosen by oneDNN (`any`) */
} dycl_pool_desc;

/* Each takes from the cache (0.1 to 0.5 us) or creates (0.3 to 1.5 ms). BAIL when oneDNN cannot, or has only its slow
 * reference loops (message says why): matmul with a column-vector operand ([m, 1]) or with A and B broadcast in one
 * dimension; convolution with SUM not first, with binary post-ops on NCHW, from a blocked source with padding. Asking
 * costs as much every time: remember a BAIL. *out is a new reference.
 *
 * Where oneDNN is not torch: RELU, CLAMP, MAX, MIN and max pooling may swallow a NaN, some SIGMOIDs too; GELU of
 * infinity may be NaN; max pooling of -inf only gives the lowest finite value. */
dycl_status dycl_prim_matmul(const dycl_matmul_desc *desc, dycl_prim **out);
dycl_status dycl_prim_conv(const dycl_conv_desc *desc, dycl_prim **out);
/* The gradient of its weights: from src and what is given for its result to dst, both in layouts of oneDNN's choice. */
dycl_status dycl_prim_conv_gradient(const dycl_conv_desc *desc, dycl_prim **out);
dycl_status dycl_prim_pool(const dycl_pool_desc *desc, dycl_prim **out);
dycl_status dycl_prim_reorder(const dycl_layout *from, const dycl_layout *to, dycl_prim **out);
int dycl_dnnl_cached(void); /* primitives in the cache now: at most 1024, least recently used ones leave */
int dycl_dnnl_alive(void);  /* primitives that exist: in the cache or in use */
void dycl_dnnl_clear(void); /* empties the cache; primitives in use live on */
void dycl_prim_retain(dycl_prim *prim);
void dycl_prim_release(dycl_prim *prim);

const char *dycl_prim_info(const dycl_prim *prim); /* "brg:avx512_core", for explain */
void dycl_prim_src_layout(const dycl_prim *prim, dycl_layout *out);
void dycl_prim_dst_layout(const dycl_prim *prim, dycl_layout *out);
void dycl_prim_gradient_layout(const dycl_prim *prim, dycl_layout *out); /* of what is given for the result */
size_t dycl_prim_scratch(const dycl_prim *prim);                         /* bytes, 64-byte aligned */
size_t dycl_prim_weights_bytes(const dycl_prim *prim); /* 0: wants the weights as they were described (no packing) */
/* weights: OIHW, or the b_strides of the descriptor. packed: dycl_prim_weights_bytes(), 64-byte aligned. */
dycl_status dycl_prim_pack(const dycl_prim *prim, const void *weights, void *packed);
/* Equal keys: the same packed form of equally described weights, so packed weights can be shared. 0: not packed. */
uint64_t dycl_prim_weights_key(const dycl_prim *prim);

typedef struct {
    const void *src, *weights, *bias; /* matmul: A, B; weights packed when dycl_prim_weights_bytes() is not 0;
                                         a gradient of weights: what is given for the result */
    void *dst, *scratch;
    const void *post[DYCL_MAX_POST_OPS]; /* operands of the binary post-ops, in order of the ops (NULL elsewhere) */
} dycl_prim_args;
dycl_status dycl_prim_execute(const dycl_prim *prim, const dycl_prim_args *args);

/* ---- Attention: softmax(scale * Q K^T + mask) V without writing all scores. f32, [batch, heads, tokens, width] with
 * strides (last one 1; else BAIL). kv_heads divides heads (grouped). mask: NULL, f32 added, or bool (0 = -inf),
 * broadcast by strides [b, h, q, k].
 * A row with every key masked gives zeros, as torch's (2.5 and later) do on every path. mask and causal may be
 * combined. BAIL when a result is not finite, or a causal mask hides a key or value that is not: there torch's kernels
 * differ among themselves, and by the length of their vectors. scratch: 64-byte aligned. */
typedef struct {
    int64_t batch, heads, kv_heads, q_len, k_len, width, v_width;
    int64_t q_strides[4], k_strides[4], v_strides[4], o_strides[4], mask_strides[4];
    int mask;   /* 0 none, 1 f32, 2 bool */
    int causal; /* top-left aligned as torch's is_causal */
    float scale;
} dycl_attention_desc;
size_t dycl_attention_scratch(const dycl_attention_desc *desc);
dycl_status dycl_attention(const dycl_attention_desc *desc, const float *q, const float *k, const float *v,
                           const void *mask, float *out, void *scratch);

#endif
