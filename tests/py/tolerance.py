"""How far a result may be from eager torch's: the one place of all tolerances.

An operator that dycl records is computed by other code than torch's, in another order. What may differ follows from the
operator's class:

EXACT          data movement, comparison, one correctly rounded operation per element: the same bits. ELEMENTWISE
functions such as exp: both sides are within about 2 ulp of the true value, so within 4 ulp (5e-7 relative in float32)
of each other; compositions (gelu, softplus, logit) multiply that by a small factor. Where a result cancels (sin near
pi, log near 1) the bound is absolute: some ulps of 1. torch's sqrt is not correctly rounded, and its add with alpha
rounds once where dycl rounds twice.
REDUCTION      n terms summed in another order differ by up to n ulp of the sum of magnitudes; operands here have at
most some hundred terms, of magnitude
               up to 9, and both sides sum in blocks, so the error grows like log n. Interpolation: 16 terms, and
               weights from positions that are rounded.
PRODUCT        inner products: as REDUCTION, with products of magnitude up to 81 that cancel, so that the absolute part
counts. TORCH          not recorded: torch itself ran it, perhaps after recorded operators. torch.testing's own
defaults.
"""

import torch

EXACT, ELEMENTWISE, REDUCTION, PRODUCT, TORCH = "exact", "elementwise", "reduction", "product", "torch"

#          class         float32: rtol, atol   float64: rtol, atol
_BOUNDS = {
    EXACT: ((0.0, 0.0), (0.0, 0.0)),
    ELEMENTWISE: ((2e-6, 1e-6), (1e-12, 1e-14)),
    REDUCTION: ((5e-6, 1e-5), (1e-11, 1e-12)),
    PRODUCT: ((1e-5, 1e-4), (1e-10, 1e-11)),
    TORCH: ((1.3e-6, 1e-5), (1e-7, 1e-7)),
}

_EXACT = """
    abs absolute neg negative sign square floor ceil round trunc fix frac isnan isinf isfinite logical_not bitwise_not mul multiply div true_divide maximum minimum fmax fmin copysign eq ne not_equal lt less le less_equal gt greater ge greater_equal logical_and
    logical_or logical_xor bitwise_and bitwise_or bitwise_xor where masked_fill clamp clip clamp_min clamp_max relu nn.functional.relu
    nn.functional.relu6 nn.functional.hardtanh nn.functional.threshold nn.functional.leaky_relu nn.functional.prelu amax amin max min argmax argmin all
    any count_nonzero cat stack chunk split view reshape transpose permute t squeeze unsqueeze expand expand_as select narrow index_select gather
    nn.functional.embedding nn.functional.pad tril triu clone contiguous flatten unflatten movedim swapaxes roll flip repeat diagonal unbind
    nn.functional.max_pool1d nn.functional.max_pool2d sort argsort msort topk histc float double long int bool to
"""
_ELEMENTWISE = """
    add sub subtract rsub sqrt exp exp2 expm1 log log2 log10 log1p rsqrt reciprocal sin cos tan tanh erf sigmoid pow float_power atan2 arctan2 floor_divide remainder fmod lerp
    addcmul addcdiv nn.functional.gelu nn.functional.silu nn.functional.mish nn.functional.hardswish nn.functional.hardsigmoid
    nn.functional.softsign nn.functional.elu nn.functional.softplus nn.functional.logsigmoid nn.functional.tanhshrink nn.functional.glu
    nn.functional.tanh nn.functional.sigmoid __rpow__ __rmod__ __rdiv__ special.expit
"""
_REDUCTION = """
    sum mean prod var std var_mean std_mean norm linalg.vector_norm linalg.norm logsumexp softmax log_softmax cumsum nn.functional.normalize
    nn.functional.softmin nn.functional.layer_norm nn.functional.rms_norm nn.functional.batch_norm nn.functional.group_norm
    nn.functional.instance_norm nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool1d
    nn.functional.adaptive_avg_pool2d nn.functional.mse_loss nn.functional.l1_loss nn.functional.interpolate special.log_softmax native_layer_norm native_batch_norm
    masked.sum masked.mean masked.prod masked.var masked.std masked.cumsum masked.softmax masked.softmin
    masked.log_softmax masked.normalize
"""
_PRODUCT = """
    matmul __rmatmul__ mm bmm mv dot vdot addmm addmv baddbmm linalg.matmul outer ger nn.functional.linear nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose1d
    nn.functional.conv_transpose2d
    nn.functional.scaled_dot_product_attention lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell addmm.decomposed einsum inner
    nn.functional.multi_head_attention_forward
"""
_CLASSES = {name: kind for kind, names in ((EXACT, _EXACT), (ELEMENTWISE, _ELEMENTWISE), (REDUCTION, _REDUCTION),
                                           (PRODUCT, _PRODUCT)) for name in names.split()}


def class_of(name):
    """The class of an operator by its name in torch's op_db, with or without a variant after the last dot."""
    for candidate in (name, name.rsplit(".", 1)[0]):
        if candidate in _CLASSES:
            return _CLASSES[candidate]
    return TORCH


# Floats of 16 bits: both sides compute in float32 and round once, so that what differs in float32 may fall to the other
# side of the middle between two
# of them: one unit in the last place, 2^-7 (2^-10) of the number at most. Sums and products that cancel: as float32's
# bounds say, besides.
HALF_ROUNDING = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def half_bounds(kind, dtype):
    return (0.0 if kind == EXACT else HALF_ROUNDING[dtype], _BOUNDS[kind][0][1])


def bounds(name, dtype):
    """(rtol, atol) for a result of the given dtype. Integers and bool are always exact."""
    single, double = _BOUNDS[class_of(name)]
    if dtype in HALF_ROUNDING:
        return half_bounds(class_of(name), dtype)
    if dtype in (torch.float64, torch.complex128):
        return double
    return single if dtype.is_floating_point or dtype.is_complex else (0.0, 0.0)

# precision="bf16". bfloat16 has 8 bits of significand: rounding to nearest moves a number by at most 2^-8 of its size,
# and a product by that much for each operand that is rounded (the little more: both at once).
BF16_OPERAND = 2.0**-8 * 1.01
F32_SUM = 2e-6  # of the sum of sizes: some hundred float32 roundings that partly cancel
# relative, of the norm: errors of the products are of random sign, 0.2 to 0.4% was seen for up to 50 of them in a row
BF16_MODEL = 1e-2

# Models and products in floats of 16 bits. A product: rounded once (half a unit in the last place), of a sum in
# float32.
def half_product(dtype, exact, size, inner):
    """How far from the exact result; size: the same sum of absolute values."""
    return exact.abs() * HALF_ROUNDING[dtype] * 0.51 + size * (F32_SUM + inner**0.5 * 6e-8) + (6e-8
            if dtype == torch.float16 else 1e-38)


HALF_MODEL = {torch.bfloat16: 4e-3, torch.float16: 5e-4}  # of the norm, beyond 1.5 times eager's own: one rounding
