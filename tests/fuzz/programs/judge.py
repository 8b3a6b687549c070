"""Which differing values count.

dycl sums in another order and computes functions with other code than torch, so its results may differ by some
roundings, and a program may amplify those without bound: x - x * (1 + eps), a division by what cancels, a comparison of
what is nearly equal. Two sides that are both right are told from a wrong one by what rounding does to eager itself:

- *noise*: eager runs again, seven times, with the operands and results of every operator that rounds in more than one
way (functions, sums, products; not copies, comparisons, one correctly rounded operation) moved by up to a unit in the
last place: all up, all down, at random. How far results move is the spread. In the sixth run, results that this moves
by more than a thirtieth of themselves are zero instead, and what is below the last place of the tensor's largest: where
sums cancel, one side may find zero. In the seventh its operands have so few bits that most results are exact: what is
equal on one side may be a unit apart on the other, which decides about the sizes of `unique`. That run has no part in
the spread. A zero that a sum of products gives has any sign: it depends on where the sum begins; so has a NaN.
- *float64*: eager runs again with floats of fewer bits replaced by float64 throughout; how far eager is from that is
its own error.

An element that differs counts unless it is within ELEMENTWISE of tests/py/tolerance.py (rtol 2e-6, atol 1e-6, for
float64 1e-12 and 1e-14, for narrower types two units in the last place), within SPREAD times the spread of that element
or ROUGH times what is typical of the tensor's spreads (root mean square without outliers), or nearer to float64's
result than NEARER times eager's distance or ROUGH times what is typical of eager's distances. Integers, booleans, NaN,
infinities, texts and the program's structure count unless noise changes that very element (path) in eager too, or, for
NaN and infinities, float64 does.
"""

import dataclasses
import functools
import re

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

import dycl

from ..pairs.known import squares_overflow
from . import compare
from .program import Program

RUNS, SPREAD, ROUGH, NEARER, SNAPS, EXACTS = 7, 32, 8, 8, 6, 7  # SNAPS, EXACTS: numbers of runs
BOUNDS = {torch.float64: (1e-12, 1e-14), torch.complex128: (1e-12, 1e-14), torch.float16: (2e-3, 1e-6),
          torch.bfloat16: (1.6e-2, 1e-6)}
ORDINARY = (2e-6, 1e-6)
HALF_SPREAD = (4, 2)  # noise is a whole unit in the last place already
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
    r"sign|relu|threshold|hardtanh|clamp.*|maximum|minimum|fmax|"
    r"fmin|max|min|amax|amin|arg.*|sort|topk|kthvalue|any|all|floor|ceil|round|trunc|frac|mul|div|true_divide|"
    r"reciprocal|copysign|tril|triu|flip|roll|repeat.*|pad|constant_pad.*|"
    r"max_pool.*|_unique.*|unique.*|nonzero.*|count_nonzero|one_hot|rand.*|normal.*|uniform.*|bernoulli.*|"
    r"multinomial|native_dropout|resize.*|set.*|signbit|add|sub|rsub)_?$"
)


ARITHMETIC = re.compile(r"^(mul|div|true_divide|add|sub|rsub|reciprocal)_?$")
# Where a result fades, torch's kernels give zero early and ours a tiny number, or the other way round.
FADING = re.compile(
    r"^(gelu|sigmoid|silu|mish|elu|celu|selu|_?softmax|_?log_softmax|exp|expm1|softplus|log_sigmoid.*)_?$")
DRAWS = r"rand|normal_|bernoulli|dropout(?!=0\.0)|multinomial|uniform_"
DRAWN = 1e-3
POSITIONS = 8  # units of the largest element: weights of an interpolation come from positions that are rounded

SUMS = re.compile(
    r"^(addmm|addmv|addbmm|baddbmm|bmm|mm|mv|dot|vdot|linear|matmul|einsum|outer|.*conv.*|.*_attention.*|sum|mean|"
    r"cumsum|.*norm.*|lstm.*|gru.*|rnn.*|.*thnn.*|avg_pool.*|.*upsample.*)_?$")


class Noise(TorchDispatchMode):
    def __init__(self, seed, number=1):
        super().__init__()
        self.snaps, self.exacts, self.scale = number == SNAPS, number == EXACTS, number != 0
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

    def with_any_zeros(self, x):
        if not _moves(x) or not _dense(x):
            return x
        signs = torch.randint(0, 2, x.shape, generator=self.rng, dtype=x.dtype) * 2 - 1
        return x.masked_scatter_(x == 0, (signs * 0.0)[x == 0])

    def with_any_nan(self, x):
        """The sign of a NaN is the processor's or the library's."""
        if not self.scale or not _moves(x) or not _dense(x):
            return x
        integers = INTEGERS[x.element_size()]  # a conversion to 16 bits makes each NaN positive
        signs = torch.randint(0, 2, x.shape, generator=self.rng).to(integers) << 8 * x.element_size() - 1
        turned = (x.view(integers) ^ signs).view(x.dtype)
        return x.masked_scatter_(x.isnan(), turned[x.isnan()])

    def nearly_zero(self, x):
        return torch.where(x == 0, (torch.rand(x.shape, generator=self.rng) * 1e-25).to(x.dtype), x)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kind = _kind(function)
        if kind.exact and not (kind.scaled and kwargs.get("alpha", 1) != 1):  # one rounding or two
            result = function(*args, **kwargs)
            return tree_map(self.with_any_nan, result) if kind.arithmetic and self.scale else result
        if self.exacts and not kind.written:
            return function(*tree_map(coarse, args), **tree_map(coarse, kwargs))
        if kind.written:
            result = function(*args, **kwargs)
            for a, x in zip(function._schema.arguments, args):
                if a.alias_info is not None and a.alias_info.is_write and isinstance(x, torch.Tensor):
                    x.copy_(self.with_any_nan(self.moved(x)))
            return result
        moved = function(*tree_map(self.moved, args), **tree_map(self.moved, kwargs))
        if kind.sums and self.scale:
            moved = tree_map(self.with_any_zeros, moved)
        if self.way < 0 and kind.fades:
            moved = tree_map_only(torch.Tensor, lambda x: torch.where(x == 0, torch.copysign(x + 1e-30, x), x), moved)
        if self.way < 0 and kind.centers:  # x - mean of both, or x * scale - mean * scale fused
            moved = tree_map_only(torch.Tensor, self.nearly_zero, moved)
            if any(squares_overflow(x) for x in tree_leaves((args, kwargs)) if _moves(x)):
                moved = tree_map_only(torch.Tensor, lambda x: x.nan_to_num(0.0) if _moves(x) else x, moved)
        if self.snaps:
            return tree_map(snapped, function(*args, **kwargs), moved)
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
    arithmetic: bool
    sums: bool
    fades: bool
    centers: bool
    interpolates: bool


@functools.cache
def _kind(function):
    name = function._schema.name.split("::")[1]
    return Kind(
        exact=function.is_view or EXACT.match(name) is not None,
        scaled=name.rstrip("_") in ("add", "sub", "rsub"),
        written=any(a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments),
        arithmetic=ARITHMETIC.match(name) is not None,
        sums=SUMS.match(name) is not None,
        fades=FADING.match(name) is not None,
        centers="norm" in name,
        interpolates="upsample" in name,
    )


def snapped(x, moved):
    if not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point or x.layout != torch.strided:
        return x
    size = x.abs()
    tiny = size < 2 * torch.finfo(x.dtype).eps * size.nan_to_num(0, 0, 0).max() if x.numel() else False
    return x.masked_fill_(((x - moved).abs() * 32 > size) | tiny, 0)


INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
COARSE = {torch.float32: (torch.int32, 12), torch.float64: (torch.int64, 26)}  # as integers, and the bits that go


def coarse(x):
    """So few bits that most sums and products of it need no rounding."""
    if not _moves(x) or not _dense(x) or x.dtype not in COARSE:
        return x
    integers, bits = COARSE[x.dtype]
    return torch.where(x.isfinite(), (x.view(integers) >> bits << bits).view(x.dtype), x)


def _moves(x):
    return isinstance(x, torch.Tensor) and x.dtype in MOVING and x.layout == torch.strided


def _dense(x):
    return all(s for s, n in zip(x.stride(), x.shape) if n > 1)


def _run(program, number, noise=None, double=False):
    """Eager's outcome of call `number`, after those before it; None where the program cannot run this way."""
    function, modules, inputs = compare.build(_Doubled(program) if double else program)
    if double:
        modules = [m.double() for m in modules]
        torch.set_default_dtype(torch.float64)
    try:
        outcome = None
        for i in range(number + 1):
            if noise is None:
                outcome = compare.call(function, modules, inputs, i, program.mode, program.seed)
            else:
                with Noise(1000 * noise + i, noise):
                    outcome = compare.call(function, modules, inputs, i, program.mode, program.seed)
        return _seen(outcome)
    except Exception:  # noqa: BLE001
        return None
    finally:
        torch.set_default_dtype(torch.float32)


def doubled(source):
    """A program's source with float64 for floats of fewer bits."""
    text = re.sub(r"torch\.(b?float16|float32)\b", "torch.float64", source)
    return re.sub(r"\.(float|half|bfloat16)\(", ".double(", text).replace("np.float32", "np.float64")


class _Doubled:
    def __init__(self, program):
        self.text = doubled(program.source())

    def source(self):
        return self.text


class Judge:
    """Of one program; its runs are made when first needed."""

    def __init__(self, program: Program):
        self.program, self.made, self.last = program, {}, []

    def leaves_of(self, outcome):
        """Values by path; those of the last two outcomes are remembered, as a list of numbers may differ in each."""
        for known, leaves in self.last:
            if known is outcome:
                return leaves
        self.last = [*self.last[-1:], (outcome, dict(compare.leaves(outcome)))]
        return self.last[-1][1]

    def still(self, number):
        """Eager's outcome where noise looks on and moves nothing."""
        if ("still", number) not in self.made:
            self.made["still", number] = _run(self.program, number, noise=0)
        return self.made["still", number]

    def runs(self, number):
        if number not in self.made:
            noisy = {k: _run(self.program, number, noise=k) for k in range(1, RUNS + 1)}
            double = _run(self.program, number, double=True)
            self.made[number] = {k: r for k, r in noisy.items() if r is not None}, double
        return self.made[number]

    def is_of_same_draws(self, e, x):
        """float64 draws other numbers: what they are part of is not near."""
        if not re.search(DRAWS, self.program.source()):
            return torch.tensor(True)
        return (e.to(_wide(e)) - x.to(_wide(e))).abs() <= DRAWN * x.to(_wide(e)).abs()

    def counts(self, difference, eager, ours):
        """Whether a difference between two outcomes is more than rounding."""
        if difference.kind == "values" and _near(*(self.leaves_of(x)[difference.where] for x in (eager, ours))):
            return False
        runs, double = self.runs(difference.call)
        noisy = list(runs.values())
        if difference.kind == "random state":  # how many numbers a draw takes may depend on values
            still = self.still(difference.call)
            return not any(r["random",] != still["random",] for r in noisy if still)
        if difference.kind not in ("values", "printed"):  # unless rounding takes another branch
            still = self.still(difference.call)
            return not any(_shape(r) != _shape(_seen(eager)) for r in noisy) \
                and not any(r["state",] != still["state",] for r in noisy if still)
        where = difference.where
        eager, ours = (self.leaves_of(x)[where] if where != ("printed",) else x.printed for x in (eager, ours))
        if isinstance(eager, str) and isinstance(ours, str) and _same_text(eager, ours):
            return False
        if isinstance(eager, np.ndarray):
            eager, ours = torch.as_tensor(eager), torch.as_tensor(ours)
        if not isinstance(eager, (torch.Tensor, float)):
            return not any(r.get(where) != eager for r in noisy)
        e, d = (torch.as_tensor(x).detach() for x in (eager, ours))
        if not e.dtype.is_floating_point and not e.dtype.is_complex:
            wrong = e != d
        else:
            wrong = ~_close(e, d)
        if not wrong.any():
            return False
        spread = torch.zeros(e.shape, dtype=torch.float64)
        for k, r in runs.items():
            x = _tensor_of(r.get(where), e)
            if x is None:
                return False  # another structure by rounding alone
            if k == EXACTS:
                continue
            moved = (x.to(_wide(e)) - e.to(_wide(e))).abs()
            wrong &= ~_class_differs(e, x)
            spread = torch.maximum(spread, moved.nan_to_num(0.0, 0.0, 0.0).to(torch.float64))
        if not (e.dtype.is_floating_point or e.dtype.is_complex):  # places of equal numbers: noise moves others of them
            changed = max((int(_class_differs(e, _tensor_of(r.get(where), e)).sum()) for r in noisy), default=0)
            return int(wrong.sum()) > changed
        distance = (d.to(_wide(e)) - e.to(_wide(e))).abs().to(torch.float64)
        many, rough = HALF_SPREAD if e.dtype in (torch.bfloat16, torch.float16) else (SPREAD, ROUGH)
        wrong &= ~(distance <= many * spread) & ~(distance <= rough * _typical(spread))
        x = _tensor_of(double.get(where), e, any_dtype=True) if double else None
        if x is not None and (x.is_floating_point() or x.is_complex()):
            wrong &= ~(nearer(e, d, x) & self.is_of_same_draws(e, x))
        return bool(wrong.any())


def nearer(e, d, x):
    """Where d is about as near to float64's result x as e is, or e is infinite or NaN and x is not."""
    truth, other = x.to(_wide(e)), (e.to(_wide(e)), d.to(_wide(e)))
    own, ours = ((o - truth).abs().to(torch.float64) for o in other)
    return (ours <= NEARER * own) | (ours <= ROUGH * _typical(own.nan_to_num(0.0, 0.0, 0.0))) | _class_differs(e, x)


def _typical(x):
    """Root mean square of what is not zero, without the outliers that a few huge elements make."""
    x = x[x > 0]
    x = x[x <= 16 * x.median()] if x.numel() else x
    return x.square().mean().sqrt() if x.numel() else 0.0


def _near(e, d):
    """Whether two values are within the bounds of one operator; no need to run anything else then."""
    if isinstance(e, (np.ndarray, float, complex)) and type(e) is type(d):
        e, d = torch.as_tensor(e), torch.as_tensor(d)
    if not isinstance(e, torch.Tensor) or not (e.dtype.is_floating_point or e.dtype.is_complex):
        return False
    return bool(_close(e.detach(), d.detach()).all())


def _wide(x):
    return torch.complex128 if x.is_complex() else torch.float64


def _close(e, d):
    rtol, atol = BOUNDS.get(e.dtype, ORDINARY)
    return torch.isclose(e.to(_wide(e)), d.to(_wide(e)), rtol=rtol, atol=atol, equal_nan=True)


def _class_differs(a, b):
    """Where one is NaN or infinite and the other is not, or is so with another sign."""
    if a.is_complex():
        return ~torch.isclose(a.isfinite().double(), b.isfinite().double())
    if not a.is_floating_point():
        return a != b.to(a.dtype)
    a, b = a.double(), b.double()
    return (a.isnan() != b.isnan()) | ((a.isinf() | b.isinf()) & (a != b))


def _tensor_of(x, like, any_dtype=False):
    if isinstance(x, (float, np.ndarray)):
        x = torch.as_tensor(x, dtype=like.dtype)
    if not isinstance(x, torch.Tensor) or x.shape != like.shape or (x.dtype != like.dtype and not any_dtype):
        return None
    return x.detach()


NUMBER = re.compile(r"-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)")


def _same_text(a, b):
    """Texts that differ in the last digits of numbers only: what a print of results that differ by roundings looks
    like."""
    if NUMBER.sub("#", a).split() != NUMBER.sub("#", b).split():
        return False
    numbers = [list(map(float, NUMBER.findall(t))) for t in (a, b)]
    least = 2e-6 * max([abs(x) for x in numbers[0]], default=0.0)
    return all(abs(x - y) <= max(1.01 * _last_digit(text), 1e-5 * abs(x), least)
               for text, x, y in zip(NUMBER.findall(a), *numbers))


def _last_digit(text):
    mantissa, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _seen(outcome):
    tensors = compare.tensors(outcome)
    state = [(x._version if not x.is_inference() else None, x._is_view()) for x in tensors], compare.relations(tensors)
    return dict(compare.leaves(outcome)) | {("printed",): outcome.printed, ("error",): outcome.error, ("state",): state,
                                            ("random",): outcome.random}


def _shape(seen):
    """What a branch that rounding decides may change."""
    return [(p, (x.shape, x.stride()) if isinstance(x, torch.Tensor) and x.layout == torch.strided else None)
            for p, x in seen.items() if p not in (("printed",), ("state",), ("random",))], seen[("error",)]


def check(program: Program):
    """(differences that count, statistics of the accelerated program). Stops at the first call with one."""
    judge, site = Judge(program), None
    for number, ((eager, _), (ours, site)) in enumerate(zip(compare.outcomes(program, False),
                                                            compare.outcomes(program, True))):
        found = [f for f in compare.differences(number, eager, ours) if judge.counts(f, eager, ours)]
        if found:
            return found, dycl.stats(site)
    return [], dycl.stats(site)
