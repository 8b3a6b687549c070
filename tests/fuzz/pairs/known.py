"""Differences from eager torch that are known, with their reasons (docs/correctness.md, "Known differences"): calls of
torch's functions whose answer, for these operands, depends on something that is no property of their values, so that no
other code can have the same."""

import torch
from torch.overrides import TorchFunctionMode

HUGE = 1e18  # squares of more overflow float32


def _wild(*tensors):
    return any(
        isinstance(x, torch.Tensor) and x.is_floating_point() and not bool(torch.isfinite(x).all()) for x in tensors
    )


def _largest(x):
    return (
        x.detach().double().abs().nan_to_num(0, torch.inf, torch.inf).max().item()
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()
        else 0.0
    )


def gelu(args, kwargs):
    """oneDNN's gelu, which torch takes for contiguous tensors of two elements and more, makes NaN of infinity and
    infinity of what lies above 2^127."""
    return _largest(args[0]) > 1e38


def remainders(args, kwargs):
    """torch's vectors give NaN where the quotient overflows, its scalar code for the last elements gives the
    remainder."""
    a, b = (x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in args[:2])
    quotient = a / b
    return bool((torch.isinf(quotient) & torch.isfinite(a) & (b != 0)).any())


def infinite_weights(args, kwargs):
    """Whether zeros of the padding, or between the elements of a transposed convolution, are multiplied depends on the
    algorithm, which torch chooses by sizes, the number of threads and the processor."""
    return _wild(*args[1:3])


def batch_norm(args, kwargs):
    """torch has two formulas: one where everything is contiguous (or the input channels last), one for the rest."""
    x, *others = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
    usual = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
    return not (usual and all(t.is_contiguous() for t in others)) and _wild(*others)


def norm_of_equals(args, kwargs):
    """What is left of equal elements after their mean is subtracted is 0 or rounding: NaN or infinity with an infinite
    weight."""
    return _wild(*[t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)][1:])


def squares_overflow(x):
    """Whether sums of them give infinity or NaN depends on their order."""
    return x.is_floating_point() and bool(((x.abs() > HUGE) & x.isfinite()).any())


def overflow(args, kwargs):
    """Sums, and sums of squares, that overflow: whether and where depends on their order."""
    return any(
        squares_overflow(x)
        for x in torch.utils._pytree.tree_leaves((args, kwargs))
        if isinstance(x, torch.Tensor)
    )


def welford(args, kwargs):
    """The mean of var_mean and std_mean: torch's update makes NaN of an infinity unless it comes last, in an order that
    depends on strides and threads."""
    return _wild(args[0])


def prod(args, kwargs):
    """Products that leave the range on the way: whether before a zero or an infinity is a matter of their order."""
    x = args[0].detach().double().abs() if args[0].is_floating_point() else torch.zeros(0)
    return bool((torch.isfinite(x) & (x > 0) & ((x > HUGE) | (x < 1 / HUGE))).any())


def zeros_of_both_signs(args, kwargs):
    """Which of 0 and -0 is the smallest: torch's vectors answer the second, its scalar code for the rest the first."""
    zeros = [x[x == 0] for x in args if isinstance(x, torch.Tensor) and x.is_floating_point()]
    signs = torch.cat([torch.signbit(z) for z in zeros]) if zeros else torch.zeros(0)
    return bool(signs.any()) and not bool(signs.all())


def scaled(args, kwargs):
    """alpha times an operand that overflows: torch's vectors round the sum alone, which may cancel it, its scalar code
    for the last elements the product, too."""
    alpha, other = kwargs.get("alpha", 1), args[1] if len(args) > 1 else kwargs.get("other")
    if alpha == 1 or not isinstance(other, torch.Tensor) or not other.is_floating_point():
        return False
    dtype = torch.float64 if other.dtype == torch.float64 else torch.float32
    product = other.detach().to(dtype) * alpha
    return bool((product.isinf() & other.isfinite()).any())


KNOWN = {
    "gelu": gelu,
    **dict.fromkeys("add sub subtract rsub".split(), scaled),
    **dict.fromkeys(
        "amin amax aminmax min max minimum maximum fmin fmax clamp clamp_min clamp_max clip".split(),
        zeros_of_both_signs,
    ),
    **dict.fromkeys("fmod remainder floor_divide __floordiv__ __rfloordiv__ __mod__ __rmod__ div".split(), remainders),
    **dict.fromkeys("conv1d conv2d conv_transpose1d conv_transpose2d".split(), infinite_weights),
    "batch_norm": batch_norm,
    **dict.fromkeys("layer_norm group_norm".split(), norm_of_equals),
    "prod": prod,
    **dict.fromkeys("var_mean std_mean".split(), welford),
}
OVERFLOWING = (
    "sum mean cumsum var std var_mean std_mean norm vector_norm softmax log_softmax layer_norm rms_norm "
    "group_norm avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d linear matmul mm bmm mv __matmul__ "
    "__rmatmul__ addmm _grouped_mm conv1d conv2d conv_transpose1d conv_transpose2d interpolate lstm gru rnn_tanh "
    "rnn_relu scaled_dot_product_attention"
).split()


RECURRENT = "lstm gru rnn_tanh rnn_relu".split()


class Finder(TorchFunctionMode):
    """Runs torch and notes the calls that are in the list."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "").removeprefix("linalg_")
        name = name if name.startswith("__") else name.rstrip("_")
        reason = KNOWN.get(name)
        if reason and reason(args, kwargs):
            self.found.append(reason.__name__)
        elif name in OVERFLOWING and overflow(args, kwargs):
            self.found.append("overflow")
        result = function(*args, **kwargs)
        if name in RECURRENT and _wild(*torch.utils._pytree.tree_leaves(result)):  # its states are results
            self.found.append("overflow")
        return result


def reasons(function, arguments):
    """Names of the known differences that the program runs into."""
    finder = Finder()
    with finder:
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001
            pass
    return finder.found


class _Attention(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.found = False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") == "scaled_dot_product_attention":
            result = function(*args, **kwargs)
            self.found |= _wild(*args, *kwargs.values(), result)
            return result
        return function(*args, **kwargs)


def not_finite_attention(function, arguments):
    """Whether the program asks for attention of operands that are not finite: torch's kernels differ there, so that it
    is torch's that runs."""
    with _Attention() as finder:
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001
            pass
    return finder.found
