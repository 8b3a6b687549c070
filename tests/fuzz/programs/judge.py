"""Which differing values count.

dycl sums in another order and computes functions with other code than torch, so its results may differ by some
roundings, and a program may amplify those without bound: x - x * (1 + eps), a division by what cancels, a comparison of
what is nearly equal. Two sides that are both right are told from a wrong one by what rounding does to eager itself:

- *noise*: eager runs again, nine times (and 23 times more before anything is reported: what a number becomes as an
integer, or whether it is zero, a few runs may leave to chance), with the operands and results of every operator that
rounds in more than one way (functions, sums, products; not copies, comparisons, one correctly rounded operation) moved
by up to a unit in the last place: all up, all down, at random. How far results move is the spread. In the sixth run,
results that this moves by more than a thirtieth of themselves are zero instead, and what is below the last place of the
tensor's largest: where sums cancel, one side may find zero; a normalisation is exact in that run, for what equal
elements leave is rounding. In the seventh its operands have so few bits that most results are exact: what is equal on
one side may be a unit apart on the other, which decides about the sizes of `unique`. The eighth rounds each result
once: in torch, equal elements may differ by a unit, as its vectors round otherwise than its code for the last elements,
or the other way round. These two have no part in the spread. In the ninth, a sum whose terms overflow in some order is
of another class (a number, an infinity, NaN); in the three after it, it is each of the infinities and zero, whose
comparisons differ. A zero that a sum of products gives has any sign: it depends on where the sum begins; so has a NaN,
and what is chosen where -0 meets 0.
- *float64*: eager runs again with floats of fewer bits replaced by float64 throughout, on the same inputs; how far
eager is from that is its own error, or its own mistake (docs/correctness.md, "Mistakes of torch").

An element that differs counts unless it is within ELEMENTWISE of tests/py/tolerance.py (rtol 2e-6, atol 1e-6, for
float64 1e-12 and 1e-14, for narrower types two units in the last place), within SPREAD times the spread of that element
or ROUGH times what is typical of the tensor's spreads (root mean square without outliers), or nearer to float64's
result than NEARER times eager's distance or ROUGH times what is typical of eager's distances. Integers, booleans, NaN,
infinities, texts and the program's structure count unless noise changes that very element (path) in eager too, or, for
NaN and infinities, float64 does.
"""

import contextlib
import re

import numpy as np
import torch

from . import compare
from .noise import CORRECT, EXACTS, Noise
from .program import Program

FEW, RUNS, SPREAD, ROUGH, NEARER = 3, 9, 32, 8, 8  # the first few explain most of what is rounding
MORE = 32  # runs in all, before a difference is reported
BOUNDS = {torch.float64: (1e-12, 1e-14), torch.complex128: (1e-12, 1e-14), torch.float16: (2e-3, 1e-6),
          torch.bfloat16: (1.6e-2, 1e-6)}
ORDINARY = (2e-6, 1e-6)
HALF_SPREAD = (4, 2)  # noise is a whole unit in the last place already
DRAWS = r"rand|normal_|bernoulli|dropout(?!=0\.0)|multinomial|uniform_"
DRAWN, REDRAWN = 1e-3, 3


class Rerun:
    """Eager's calls once more, one after the other. double: with float64. seed: draws other numbers."""

    def __init__(self, program, noise=None, double=False, seed=0):
        self.program, self.noise, self.double, self.seed = program, noise, double, program.seed + seed
        self.source = _Doubled(program) if double else program
        self.next, self.seen, self.failed = 0, None, False

    def at(self, number):
        """What call `number` gave: to be looked at before a later one is asked for. None where the program cannot run
        this way."""
        if number < self.next - 1:
            self.next, self.failed = 0, False
        try:
            while self.next <= number and not self.failed:
                self.seen = _seen(self.advance())
                self.next += 1
        except Exception:  # noqa: BLE001
            self.failed = True
        return None if self.failed else self.seen

    def advance(self):
        if self.next == 0:
            self.function, self.modules, self.inputs = compare.build(self.source)
            self.modules = [m.double() if self.double else m for m in self.modules]
        noise = contextlib.nullcontext() if self.noise is None else Noise(1000 * self.noise + self.next, self.noise)
        torch.set_default_dtype(torch.float64 if self.double else torch.float32)
        try:
            with noise:
                return compare.call(self.function, self.modules, self.inputs, self.next, self.program.mode, self.seed)
        finally:
            torch.set_default_dtype(torch.float32)


MAKES = re.compile(r'torch\.(bfloat16|float16|float32), (\d+ \+ seed, "[^"]*")\)')  # the end of a call of make
MODULES = re.compile(r"(\n\s*(?:self\.)?m\d+ = .*)")


def doubled(source):
    """A program's source with float64 for floats of fewer bits. Its inputs are the same numbers; so are its modules',
    which become float64 when they are made."""
    text = MAKES.sub(r'torch.float64, \2, "\1")', source)
    return "".join(part if MODULES.fullmatch(part) else _doubled(part) for part in MODULES.split(text))


def _doubled(text):
    text = re.sub(r"torch\.(b?float16|float32)\b", "torch.float64", text)
    return re.sub(r"\.(float|half|bfloat16)\(", ".double(", text).replace("np.float32", "np.float64")


class _Doubled:
    def __init__(self, program):
        self.text, self.namespace = doubled(program.source()), program.namespace

    def source(self):
        return self.text


class Judge:
    """Of one program; its runs are made when first needed."""

    def __init__(self, program: Program):
        self.program, self.made, self.reruns, self.last = program, {}, {}, []

    def leaves_of(self, outcome):
        """Values by path; those of the last two outcomes are remembered, as a list of numbers may differ in each."""
        for known, leaves in self.last:
            if known is outcome:
                return leaves
        self.last = [*self.last[-1:], (outcome, dict(compare.leaves(outcome)))]
        return self.last[-1][1]

    def rerun(self, number, **options):
        key = tuple(options.items())
        if key not in self.reruns:
            self.reruns[key] = Rerun(self.program, **options)
        return self.reruns[key].at(number)

    def still(self, number):
        """Eager's outcome where noise looks on and moves nothing."""
        if ("still", number) not in self.made:
            self.made["still", number] = self.rerun(number, noise=0)
        return self.made["still", number]

    def runs(self, number, count):
        """The first `count` noisy runs that are possible, by their numbers."""
        noisy = self.made.setdefault(("noisy", number), {})
        for k in range(len(noisy) + 1, count + 1):
            noisy[k] = self.rerun(number, noise=k)
        return {k: r for k, r in noisy.items() if r is not None and k <= count}

    def double(self, number):
        if ("double", number) not in self.made:
            self.made["double", number] = self.rerun(number, double=True)
        return self.made["double", number]

    def redrawn(self, number):
        """Outcomes in float64 with other random numbers."""
        if ("redrawn", number) not in self.made:
            self.made["redrawn", number] = [self.rerun(number, double=True, seed=1000 + k)
                                            for k in range(REDRAWN)]
        return self.made["redrawn", number]

    def is_of_same_draws(self, difference, e, x):
        """float64 draws other numbers: what they are part of is not near. They are no part of what other numbers leave
        as it is."""
        if not re.search(DRAWS, self.program.source()):
            return torch.tensor(True)
        others = [_tensor_of(r.get(difference.where), x) if r else None for r in self.redrawn(difference.call)]
        if all(y is not None and bool(((x == y) | (x != x) & (y != y)).all()) for y in others):
            return torch.tensor(True)
        return (e.to(_wide(e)) - x.to(_wide(e))).abs() <= DRAWN * x.to(_wide(e)).abs()

    def counts(self, difference, eager, ours):
        """Whether a difference between two outcomes is more than rounding."""
        return all(self._counts(difference, eager, ours, count) for count in (FEW, RUNS, MORE))

    def _counts(self, difference, eager, ours, count):
        if difference.kind == "values" and _near(*(self.leaves_of(x)[difference.where] for x in (eager, ours))):
            return False
        runs, double = self.runs(difference.call, count), self.double(difference.call)
        noisy = list(runs.values())
        if difference.kind == "random state":  # how many numbers a draw takes may depend on values
            still = self.still(difference.call)
            return not any(r["random",] != still["random",] for r in noisy if still)
        if difference.kind == "noted" and _moves_what_is_noted(difference.where, noisy, self.still(difference.call)):
            return False
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
            if k in (EXACTS, CORRECT):
                continue
            moved = apart(x, e)
            wrong &= ~_class_differs(e, x)
            spread = torch.maximum(spread, moved.nan_to_num(0.0, 0.0, 0.0))
        if not (e.dtype.is_floating_point or e.dtype.is_complex):  # places of equal numbers: noise moves others of them
            changed = max((int(_class_differs(e, _tensor_of(r.get(where), e)).sum()) for r in noisy), default=0)
            return int(wrong.sum()) > changed
        distance = apart(d, e)
        many, rough = HALF_SPREAD if e.dtype in (torch.bfloat16, torch.float16) else (SPREAD, ROUGH)
        wrong &= ~(distance <= many * spread) & ~(distance <= rough * _typical(spread))
        x = _tensor_of(double.get(where), e, any_dtype=True) if double else None
        if x is not None and (x.is_floating_point() or x.is_complex()):
            wrong &= ~(nearer(e, d, x) & self.is_of_same_draws(difference, e, x))
        return bool(wrong.any())


def nearer(e, d, x):
    """Where d is about as near to float64's result x as e is, or e is infinite or NaN and x is not."""
    own, ours = apart(e, x), apart(d, x)
    return (ours <= NEARER * own) | (ours <= ROUGH * _typical(own.nan_to_num(0.0, 0.0, 0.0))) | _class_differs(e, x)


def apart(a, b):
    """The distance of two values, in float64. Of complex ones, an infinite part beside another that is rounded counts
    for nothing where it is the same."""
    if not a.is_complex():
        return (a.double() - b.double()).abs()
    a, b = (torch.view_as_real(x.to(torch.complex128).resolve_conj()) for x in (a, b))
    parts = torch.where(a == b, 0.0, (a - b).abs())
    return torch.hypot(parts[..., 0], parts[..., 1])


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
    near = torch.isclose(e.to(_wide(e)), d.to(_wide(e)), rtol=rtol, atol=atol, equal_nan=True)
    return near | (apart(e, d) <= atol) if e.is_complex() else near


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
    def look(x):
        if isinstance(x, np.ndarray):
            return x.shape, x.strides
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
            return None
        try:
            made_by = type(x.grad_fn).__name__
        except RuntimeError as error:  # a view that its base was written behind
            made_by = str(error)
        return x.shape, x.stride(), made_by

    return [(p, look(x)) for p, x in seen.items() if p not in (("printed",), ("state",), ("random",))], seen[("error",)]


def _moves_what_is_noted(where, noisy, still):
    """Of a tensor that may be no result: how many elements rounding chose, say."""
    return still is not None and any(r.get(where) != still.get(where) for r in noisy)


def check(program: Program):
    """(differences that count, the accelerated function). Stops at the first call with one."""
    judge, site = Judge(program), None
    for number, ((eager, _), (ours, site)) in enumerate(zip(compare.outcomes(program, False),
                                                            compare.outcomes(program, True))):
        found = [f for f in compare.differences(number, eager, ours) if judge.counts(f, eager, ours)]
        if found:
            return found, site
    return [], site
