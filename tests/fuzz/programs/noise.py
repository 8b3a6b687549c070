"""Eager torch with the rounding of its operators moved: the runs of judge.py."""

import dataclasses
import functools
import re

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from ..pairs.known import squares_overflow

SNAPS, EXACTS, CORRECT = 6, 7, 8  # numbers of runs
# Runs in which what hangs on the order of terms that overflow is this (None: of another class than it was).
OVERFLOWS = {9: None, 10: float("inf"), 11: -float("inf"), 12: 0.0}
# Floats of 16 bits: eager's own kernels round to them in the middle (attention, a bias that is added afterwards), so
# that noise is one unit in the last place of some.
MOVING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Operators whose results do not depend on who computes them: data movement, choice, one correctly rounded operation an
# element.
EXACT = re.compile(
    r"^(_?(to_)?copy_?|clone|view.*|_unsafe_view|_reshape.*|reshape|alias|detach.*|as_strided.*|expand.*|permute|"
    r"transpose.*|t|squeeze.*|unsqueeze.*|select.*|slice.*|"
    r"split.*|unbind.*|unfold.*|diagonal.*|cat|stack|index.*|gather|scatter.*|embedding|masked.*|where|fill.*|zero.*|"
    r"ones.*|full.*|empty.*|new_.*|arange.*|eye.*|scalar_tensor|"
    r"lift.*|_local_scalar_dense|item|eq|ne|lt|le|gt|ge|logical_.*|bitwise_.*|isnan|isinf|isfinite|isin.*|abs|neg|"
    r"sign|relu|threshold|hardtanh|hardshrink|clamp.*|maximum|minimum|fmax|"
    r"fmin|max|min|amax|amin|arg.*|sort|topk|kthvalue|any|all|floor|ceil|round|trunc|frac|mul|div|true_divide|"
    r"reciprocal|copysign|tril|triu|flip|roll|repeat.*|pad|constant_pad.*|"
    r"max_pool.*|_unique.*|unique.*|nonzero.*|count_nonzero|one_hot|rand.*|normal.*|uniform.*|bernoulli.*|"
    r"multinomial|native_dropout|resize.*|set.*|signbit|add|sub|rsub)_?$"
)


# Where -0 meets 0, torch's vectors take one operand and its code for the last elements the other.
CHOOSING = re.compile(r"^(maximum|minimum|clamp|clamp_max|clamp_min|max|min|amax|amin|aminmax)_?$")
ARITHMETIC = re.compile(r"^(mul|div|true_divide|add|sub|rsub|reciprocal|frac|_to_copy|copy)_?$")  # may make a NaN
# Where a result fades, torch's kernels give zero early and ours a tiny number, or the other way round.
FADING = re.compile(
    r"^(gelu|sigmoid|silu|mish|elu|celu|selu|_?softmax|_?log_softmax|exp|expm1|softplus|log_sigmoid.*)_?$")
LOOKS = 8  # moves that are asked whether they change a result
SILENT = {"aten::native_batch_norm": (3, 4)}  # operands that it writes without its schema's saying so
POSITIONS = 8  # units of the largest element: weights of an interpolation come from positions that are rounded

SUMS = re.compile(
    r"^(addmm|addmv|addbmm|baddbmm|bmm|mm|mv|dot|vdot|linear|matmul|einsum|outer|.*conv.*|.*_attention.*|sum|mean|"
    r"cumsum|.*norm.*|lstm.*|gru.*|rnn.*|.*thnn.*|avg_pool.*|.*upsample.*)_?$")


class Noise(TorchDispatchMode):
    def __init__(self, seed, number=1):
        super().__init__()
        self.snaps, self.exacts, self.scale = number == SNAPS, number == EXACTS, number != 0
        self.correct, self.overflows, self.stands_for = number == CORRECT, number in OVERFLOWS, OVERFLOWS.get(number)
        self.way = {1: 1, 2: -1}.get(number, 0)  # 1 all up, -1 all down, 0 at random
        self.rng = torch.Generator().manual_seed(seed)

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # torch would import its compiler, and ask it at each operator

    def moved(self, x, reach=None):
        """reach: a size by whose rounding it may move besides."""
        if not _moves(x):
            return x
        u = torch.rand(x.shape, generator=self.rng, dtype=torch.float64) * 2 - 1
        u = (torch.full_like(u, self.way) if self.way else u) * self.scale
        eps = torch.finfo(x.dtype).eps
        if reach is not None:
            x = x + (u * eps * reach).to(x.dtype)
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x * (1 + u * eps)) if _dense(x) \
            else x * (1 + u * eps).to(x.dtype)

    def with_any_zeros(self, x, where=True):
        if not _moves(x) or not _dense(x):
            return x
        signs = torch.randint(0, 2, x.shape, generator=self.rng, dtype=x.dtype) * 2 - 1
        signs = torch.full_like(signs, self.way) if self.way else signs  # both are seen of each zero
        zeros = (x == 0) & where
        return x.masked_scatter_(zeros, (signs * 0.0)[zeros])

    def with_zeros_that_meet(self, function, args, kwargs):
        outs = [a.name for a in function._schema.arguments if a.kwarg_only and a.alias_info is not None]
        read = [x for x in tree_leaves((args, [x for name, x in kwargs.items() if name not in outs])) if _moves(x)]
        try:
            met, shape = zeros_that_meet(read), torch.broadcast_shapes(*(x.shape for x in read))
        except RuntimeError:  # what is said about these sizes is torch's
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        return tree_map(lambda x: self.with_any_zeros(x, met(x.shape == shape)) if _moves(x) else x, result)

    def with_any_nan(self, x):
        """The sign of a NaN is the processor's or the library's."""
        if not self.scale or not _moves(x) or not _dense(x):
            return x
        integers = INTEGERS[x.element_size()]  # a conversion to 16 bits makes each NaN positive
        signs = torch.randint(0, 2, x.shape, generator=self.rng).to(integers) << 8 * x.element_size() - 1
        turned = (x.view(integers) ^ signs).view(x.dtype)
        return x.masked_scatter_(x.isnan(), turned[x.isnan()])

    def rewrite(self, function, args, change):
        """What it wrote, changed."""
        for a, x in zip(function._schema.arguments, args):
            if _is_written(a):
                for y in tree_leaves(x):  # one, or a list of them (_foreach_add_)
                    if isinstance(y, torch.Tensor):
                        y.copy_(change(y))

    def where_terms_overflow(self, function, kind, args, kwargs):
        """Where the sizes of the terms add up to more than the dtype holds, their order decides about what comes of it:
        any class of number stands there. So it does for the mean of `var_mean` of an infinity."""
        plain = function(*args, **kwargs)
        if kind.means and not plain[1].isfinite().all():
            return plain[0], self.of_another_class(plain[1], ~plain[1].isfinite())
        if not kind.sums:
            return plain
        sizes = functools.partial(_sizes, finite=self.stands_for is not None)
        try:
            sizes = function(*tree_map(sizes, args), **tree_map(sizes, kwargs))
        except RuntimeError:  # no kernel of it in float64
            return plain
        return tree_map(
            lambda x, size: self.of_another_class(x, size > torch.finfo(x.dtype).max)
            if _moves(x) and x.dtype != torch.float64 else x, plain, sizes)

    def where_torchs_kernels_part(self, function, args, kwargs):
        """Of an infinity gelu is NaN where oneDNN computes it for torch, and the limit elsewhere."""
        infinite = args[0].isinf()
        result = function(*args, **kwargs)
        if _is_written(function._schema.arguments[0]):
            self.rewrite(function, args, lambda x: self.of_another_class(x, infinite))
            return result
        return tree_map(lambda x: self.of_another_class(x, infinite) if _moves(x) else x, result)

    def of_another_class(self, x, where):
        other = torch.where(x.isnan(), torch.zeros_like(x), torch.full_like(x, float("nan"))) \
            if self.stands_for is None else torch.full_like(x, self.stands_for)
        return torch.where(where, other, x)

    def nearly_zero(self, x):
        return torch.where(x == 0, (torch.rand(x.shape, generator=self.rng) * 1e-25).to(x.dtype), x)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = _kind(function)
        if kind.chooses and self.scale and _moves(args[0]):
            return self.with_zeros_that_meet(function, args, kwargs)
        if kind.exact and not (kind.scaled and kwargs.get("alpha", 1) != 1):  # one rounding or two
            result = function(*args, **kwargs)
            if not kind.arithmetic or not self.scale:
                return result
            if not kind.written:
                return tree_map(self.with_any_nan, result)
            self.rewrite(function, args, self.with_any_nan)
            return result
        if self.correct and not kind.written:
            return _rounded_once(function, args, kwargs)
        if self.exacts and not kind.written:
            return _written_back(function, args, tree_map(coarse, args), tree_map(coarse, kwargs))
        if self.overflows and kind.parts and _moves(args[0]):
            return self.where_torchs_kernels_part(function, args, kwargs)
        if self.overflows and not kind.written:
            return self.where_terms_overflow(function, kind, args, kwargs)
        if kind.written:
            if kind.sums:  # what is added up cancels
                self.rewrite(function, args, self.moved)
                args = [x if _is_written(a) else tree_map(self.moved, x)
                        for a, x in zip(function._schema.arguments, args)]
            result = function(*args, **kwargs)
            self.rewrite(function, args, lambda x: self.with_any_nan(self.moved(x)))
            return result
        once = _called if self.snaps else _written_back
        moved = once(function, args, tree_map(self.moved, args), tree_map(self.moved, kwargs))
        if kind.sums and self.scale:
            moved = tree_map(self.with_any_zeros, moved)
        if self.way < 0 and kind.fades:
            moved = tree_map_only(torch.Tensor, lambda x: torch.where(x == 0, torch.copysign(x + 1e-30, x), x), moved)
        if self.way < 0 and kind.centers:  # x - mean of both, or x * scale - mean * scale fused
            moved = tree_map_only(torch.Tensor, self.nearly_zero, moved)
            if any(squares_overflow(x) for x in tree_leaves((args, kwargs)) if _moves(x)):
                moved = tree_map_only(torch.Tensor, lambda x: x.nan_to_num(0.0) if _moves(x) else x, moved)
        if self.snaps:
            # Of a normalisation: what is left of equal elements is rounding, which may be the same after each move. A
            # sum of few elements is the same after one of three moves.
            plain = (_rounded_once if kind.normalizes else _as_is)(function, args, kwargs)
            again = [function(*tree_map(self.moved, args), **tree_map(self.moved, kwargs)) for _ in range(LOOKS - 1)]
            return tree_map(snapped, plain, moved, *again)
        reach = None
        if kind.interpolates and args[0].numel():
            reach = POSITIONS * args[0].nan_to_num(0, 0, 0).abs().max().double()
        return tree_map(lambda x: self.with_any_nan(self.moved(x, reach)), moved)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Of an operator. exact: its results do not depend on who computes them; scaled: that holds without alpha only;
    written: it writes an operand."""

    exact: bool
    scaled: bool
    written: bool
    chooses: bool
    arithmetic: bool
    sums: bool
    means: bool
    fades: bool
    centers: bool
    normalizes: bool
    interpolates: bool
    parts: bool


@functools.cache
def _kind(function):
    name = function._schema.name.split("::")[1]
    return Kind(
        exact=function.is_view or EXACT.match(name) is not None,
        scaled=name.rstrip("_") in ("add", "sub", "rsub"),
        written=any(map(_is_written, function._schema.arguments)),
        chooses=CHOOSING.match(name) is not None,
        arithmetic=ARITHMETIC.match(name) is not None,
        sums=SUMS.match(name) is not None,
        means=name in ("var_mean", "std_mean"),
        fades=FADING.match(name) is not None,
        centers="norm" in name,
        normalizes=re.search("(layer|batch|group|instance)_norm", name) is not None,
        interpolates="upsample" in name,
        parts=re.match("gelu_?$", name) is not None,
    )


def zeros_that_meet(operands):
    """A function that says in which elements zeros of both signs are chosen from: of each place of the operands, or of
    all of them (a reduction)."""
    zeros = [(x == 0, x.signbit()) for x in torch.broadcast_tensors(*operands)]
    negative, positive = ([z & (s if of else ~s) for z, s in zeros] for of in (True, False))

    def both(elementwise):
        if elementwise:
            return functools.reduce(torch.logical_or, negative) & functools.reduce(torch.logical_or, positive)
        return any(map(torch.any, negative)) and any(map(torch.any, positive))

    return both


def snapped(x, *moved):
    if not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point or x.layout != torch.strided:
        return x
    size = x.abs()
    tiny = size < 2 * torch.finfo(x.dtype).eps * size.nan_to_num(0, 0, 0).max() if x.numel() else False
    changes = functools.reduce(torch.logical_or, [(x - m).abs() * 32 > size for m in moved])
    return x.masked_fill_(changes | tiny, 0)


INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
COARSE = {torch.float32: (torch.int32, 12), torch.float64: (torch.int64, 26)}  # as integers, and the bits that go


def coarse(x):
    """So few bits that most sums and products of it need no rounding."""
    if not _moves(x) or not _dense(x) or x.dtype not in COARSE:
        return x
    integers, bits = COARSE[x.dtype]
    return torch.where(x.isfinite(), (x.view(integers) >> bits << bits).view(x.dtype), x)


def _is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def _moves(x):
    """Not zeros without memory, which some formulas of gradients give: reading them in here ends the process."""
    return isinstance(x, torch.Tensor) and x.dtype in MOVING and x.layout == torch.strided and not x._is_zerotensor()


def _called(function, args, given, kwargs):
    return function(*given, **kwargs)


def _written_back(function, args, given, kwargs):
    """Called with copies. What it writes without its schema's saying so (statistics) is written, too."""
    result = function(*given, **kwargs)
    for i in SILENT.get(function._schema.name, ()):
        if args[i] is not None and given[i] is not args[i]:
            args[i].copy_(given[i])
    return result


def _as_is(function, args, kwargs):
    return function(*args, **kwargs)


def _sizes(x, finite):
    """finite: an infinity among the terms decides, whatever their order."""
    if not _moves(x):
        return x
    return x.double().abs().nan_to_num(0.0, 0.0, 0.0) if finite else x.double().abs()


def _rounded_once(function, args, kwargs):
    """Computed in float64: equal elements give equal results, wherever in a vector they lie."""
    plain = function(*args, **kwargs)
    exact = function(*tree_map(_widened, args), **tree_map(_widened, kwargs))
    return tree_map(lambda x, y: y.to(x.dtype) if isinstance(x, torch.Tensor) else x, plain, exact)


def _widened(x):
    return x.double() if _moves(x) else x


def _dense(x):
    return all(s for s, n in zip(x.stride(), x.shape) if n > 1)
