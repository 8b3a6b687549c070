"""Runs a program in eager torch and through dycl and compares everything that a program can tell.

Values. A row of class EXACT has to give the same bits; so has a sum or product whose operands lie on the grid
(values.py). Others are compared with the bounds of tests/py/tolerance.py. Where those are exceeded, the program runs in
eager torch again with every inexact operator off by what it may be off (jitter.py): what moves then says how far the
rest of the program carries such differences. A result that is decided by them (a comparison of equal numbers, the first
of two largest elements) is *unstable* there, and such a case says nothing about the pair; everything else must agree.

What is inexact may be nearer to float64's result than eager's is: torch's norms add up one after the other, and lose
three digits of 80,000 terms. Floats of 16 bits are judged as the random programs are (programs/judge.py): eager's
kernels round to them in the middle, which a mode below the dispatcher sees.
"""

import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "py"))

import tolerance  # noqa: E402
from same import relations  # noqa: E402

import dycl  # noqa: E402

from ..programs import judge as of_programs  # noqa: E402
from . import jitter, known, rows, values  # noqa: E402
from .case import fresh_space  # noqa: E402
from .jitter import copy_of, is_on_grid  # noqa: E402

# A name of each class for tolerance.bounds
_LIKE = {rows.EXACT: "neg", rows.ELEMENTWISE: "exp", rows.REDUCTION: "sum", rows.PRODUCT: "matmul"}
TRIALS, MORE = 6, 60
AMPLIFIED = 4  # what the trials show is a sample of what may be


class Difference(AssertionError):
    """kind: crash, error, type, dtype, sizes, strides, version, aliasing, inputs, values, replay."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def require(condition, kind, text):
    if not condition:
        raise Difference(kind, text() if callable(text) else text)


def leaves(tree):
    return [leaf for branch in tree for leaf in leaves(branch)] if isinstance(tree, (tuple, list)) else [tree]


def run(function, arguments):
    """(leaves of the result, the arguments afterwards, error)"""
    arguments = [copy_of(x) for x in arguments]
    try:
        return leaves(function(*arguments)), arguments, None
    except Exception as error:  # noqa: BLE001
        return [], arguments, error


# ---- Values


def magnitude(tensors):
    """The largest finite number."""
    most = 0.0
    for x in tensors:
        if x.is_floating_point() and x.numel():
            most = max(most, x.detach().double().abs().nan_to_num(0, 0, 0).max().item())
    return most


def differing(want, got):
    """Where the bits differ; any NaN equals any other."""
    if not want.is_floating_point():
        return want != got
    equal = (want == got) & ((want != 0) | (torch.signbit(want) == torch.signbit(got)))
    return ~(equal | ((want != want) & (got != got)))


def same_bits(want, got, signs=True):
    """Equal elements; signs: of zeros too."""
    if torch.equal(want, got) and not (signs and want.is_floating_point()):
        return True
    if signs or not want.is_floating_point():
        return not bool(differing(want, got).any())
    return bool(((want == got) | ((want != want) & (got != got))).all())


def outside(want, got, rtol, atol, allowed):
    """Where they differ by more than the bounds and `allowed` (None or a tensor; infinite: anything)."""
    if not want.is_floating_point():
        return (want != got) & (torch.isinf(allowed).logical_not() if allowed is not None else True)
    w, g = want.double(), got.double()
    both = torch.isfinite(w) & torch.isfinite(g)
    bound = atol + rtol * w.abs()
    if allowed is not None:
        bound = bound + allowed
    near = (w - g).abs() <= bound
    wrong = torch.where(both, ~near, ~((w == g) | ((w != w) & (g != g))))
    return wrong & torch.isinf(allowed).logical_not() if allowed is not None else wrong


class Judge:
    """One program: its eager results for two sets of arguments, and how they may be differed from."""

    def __init__(self, program, seed):
        self.program = program
        self.space = fresh_space()
        torch.default_generator.manual_seed(seed)
        exec(compile(program.source, f"<{program.producer.name} {program.consumer.name}>", "exec"), self.space)
        self.function = self.space["program"]
        self.constants = [self.space[name] for name, _ in program.constants]
        self.sets = [self.space["make"]() for _ in range(2)]
        self.expected = [run(self.function, x) for x in self.sets]
        self.unstable, self.known = False, None
        self.half = bool(program.floats & set(values.HALVES))
        self.single = self.half or "f32" in program.floats

    def renew(self):
        """Other contents of the constants, in place: nothing that was packed may be used any more."""
        for x in self.constants:
            if (
                x.is_floating_point()
                and x.is_leaf
                and x.numel()
                and all(s or n < 2 for n, s in zip(x.shape, x.stride()))
            ):
                x.neg_()
        self.expected = [run(self.function, x) for x in self.sets]

    # ---- What the program may differ by

    def _is_exact(self, arguments):
        """Whether the results must have the very bits, and whether signs of zeros count."""
        pair = (self.program.producer, self.program.consumer)
        if all(row.kind == rows.EXACT for row in pair):
            return True, self.program.zeros
        given = [*arguments, *self.constants]
        on_grid = all(row.kind == rows.EXACT or row.on_grid for row in pair) and all(is_on_grid(x) for x in given)
        if self.half or not on_grid:
            return False, False
        return all(row.kind == rows.EXACT for row in pair[1:]) or is_on_grid(self._producers_result(arguments)), False

    def _producers_result(self, arguments):
        space = dict(self.space)
        space.update((name, copy_of(x)) for (name, _), x in zip(self.program.arguments, arguments))
        for line in self.program.lines[: self.program.split]:
            exec(line, space)
        return space["y"]

    def _noise(self, trial):
        if self.half:
            return of_programs.Noise(trial, trial + 1)
        return jitter.Jitter(trial, self.single)

    def _as_doubles(self, arguments, want):
        """The results in float64 throughout; None where they are others."""
        wide = lambda x: x.double() if x.is_floating_point() else x  # noqa: E731
        space = fresh_space()
        exec(of_programs.doubled(self.program.source), space)
        space.update((name, wide(self.space[name])) for name, _ in self.program.constants)
        results, _, _ = run(space["program"], [wide(x) for x in arguments])
        same = [(x.shape, x.is_floating_point()) for x in results] == [(x.shape, x.is_floating_point()) for x in want]
        return results if same else [None] * len(want)

    def _spread(self, arguments, want, trials=range(TRIALS)):
        """How far the results move in eager torch when every inexact operator is off by what it may be off, and its
        operands by rounding."""
        moved = [torch.zeros(w.shape, dtype=torch.float64) for w in want]
        for trial in trials:
            with self._noise(trial):
                others, _, error = run(self.function, arguments)
            if error is not None:
                return None
            for m, w, o in zip(moved, want, others):
                if w.is_floating_point():
                    apart = (w.double() - o.double()).abs()
                    apart = torch.where((w == o) | ((w != w) & (o != o)), torch.zeros_like(apart), apart)
                    torch.maximum(m, apart.nan_to_num(nan=math.inf, posinf=math.inf) * AMPLIFIED, out=m)
                else:
                    m.masked_fill_(w != o, math.inf)
        return moved

    def _bounds(self, arguments, want, exact):
        """(relative, absolute): what the pair's operators may differ by."""
        kinds = [row.kind for row in (self.program.producer, self.program.consumer)]
        kind = rows.EXACT if exact else max(kinds, key=list(_LIKE).index)
        rtol, atol = tolerance.bounds(_LIKE[kind], torch.float32 if self.single else torch.float64)
        atol *= 2  # what follows may double the difference
        if self.half and not exact:
            rtol = max(of_programs.BOUNDS[values.DTYPES[name]][0] for name in self.program.floats & set(values.HALVES))
        if kind in (rows.REDUCTION, rows.PRODUCT):
            given = [
                *arguments,
                *self.constants,
            ]  # what cancels was as large as these, and as other elements of the result
            terms = max(16, *(x.numel() for x in given))
            rounding = 2e-7 if self.single else 2e-14
            atol *= min(1e3, max(1.0, magnitude(given))) ** self.program.consumer.power
            atol += rounding * math.sqrt(terms) * magnitude(want)
        return rtol, atol

    def _compare_values(self, which, want, got):
        arguments = self.sets[which]
        exact, signs = self._is_exact(arguments)
        want, got = [w.detach() for w in want], [g.detach() for g in got]
        if all(same_bits(w, g, exact and signs) for w, g in zip(want, got)):
            return
        if exact and signs:
            wrong = [differing(w, g) for w, g in zip(want, got)]
        else:
            rtol, atol = self._bounds(arguments, want, exact)
            if not any(outside(w, g, rtol, atol, None).any() for w, g in zip(want, got)):
                return
            moved = self._spread(arguments, want) or [None] * len(want)
            if any(m is not None and bool(outside(w, g, rtol, atol, m).any()) for w, g, m in zip(want, got, moved)):
                more = self._spread(arguments, want, range(TRIALS, MORE)) or moved  # what jumps, jumps seldom
                moved = [torch.maximum(a, b) for a, b in zip(moved, more)]
            self.unstable |= any(m is not None and bool(torch.isinf(m).any()) for m in moved)
            wrong = [outside(w, g, rtol, atol, m) for w, g, m in zip(want, got, moved)]
            if not exact and any(bool(bad.any()) for bad in wrong):
                wrong = [
                    bad & ~of_programs.nearer(w, g, truth) if truth is not None and w.is_floating_point() else bad
                    for bad, w, g, truth in zip(wrong, want, got, self._as_doubles(arguments, want))
                ]
        for i, (w, g, bad) in enumerate(zip(want, got, wrong)):
            if not bool(bad.any()):
                continue
            found = known.reasons(self.function, [copy_of(x) for x in arguments])
            if not found:
                at = tuple(bad.nonzero()[0].tolist())
                text = f"at {at} eager {w[at].item()!r}, dycl {g[at].item()!r}"
                raise Difference("values", f"result {i}: {int(bad.sum())} of {w.numel()} elements; {text}")
            self.known = found[0]

    def _is_written_alike(self, which, w, g, results):
        """An argument that a result is a view of: what was computed into it has the bounds of what is computed."""
        storage = w.untyped_storage().data_ptr()
        exact, _ = self._is_exact(self.sets[which])
        if exact or not any(r.untyped_storage().data_ptr() == storage for r in results):
            return False
        return not bool(outside(w, g, *self._bounds(self.sets[which], [w], exact), None).any())

    # ---- Everything

    def may_replay(self):
        """Whether torch's own kernels are due in a plan: attention of what is not finite (docs/correctness.md)."""
        return any(known.not_finite_attention(self.function, [copy_of(x) for x in given]) for given in self.sets)

    def compare(self, which, actual):
        (want, want_inputs, want_error), (got, got_inputs, got_error) = self.expected[which], actual
        describe = lambda: f"eager {want_error!r}, dycl {got_error!r}"  # noqa: E731
        require(type(want_error) is type(got_error) and str(want_error) == str(got_error), "error", describe)
        require(len(want) == len(got), "type", lambda: f"{len(got)} results instead of {len(want)}")
        for i, (w, g) in enumerate(zip(want, got)):
            require(type(w) is type(g), "type", lambda: f"result {i}: {type(g)} instead of {type(w)}")
            if not isinstance(w, torch.Tensor):
                raise Difference("type", f"result {i} is a {type(w)}")
            require(w.dtype == g.dtype, "dtype", lambda: f"result {i}: {g.dtype} instead of {w.dtype}")
            require(w.shape == g.shape, "sizes", lambda: f"result {i}: {tuple(g.shape)} instead of {tuple(w.shape)}")
            require(
                w.stride() == g.stride() and w.storage_offset() == g.storage_offset(),
                "strides",
                lambda: (
                    f"result {i} of {tuple(w.shape)}: {g.stride()}, offset {g.storage_offset()} "
                    f"instead of {w.stride()}, {w.storage_offset()}"
                ),
            )
            require(
                w.requires_grad == g.requires_grad and w.is_leaf == g.is_leaf,
                "type",
                lambda: f"result {i}: requires_grad {g.requires_grad}",
            )
        if want_error is None:
            self._compare_values(which, want, got)
        for i, (w, g) in enumerate(zip(want, got)):
            require(w._version == g._version, "version", lambda: f"result {i}: {g._version} instead of {w._version}")
        for i, (w, g) in enumerate(zip(want_inputs, got_inputs)):
            require(w._version == g._version, "version", lambda: f"argument {i}: {g._version} instead of {w._version}")
            alike = same_bits(w, g) or self._is_written_alike(which, w, g, want)
            require(w.stride() == g.stride() and alike, "inputs", lambda: f"argument {i} differs afterwards")
        ours, theirs = relations([*got, *got_inputs]), relations([*want, *want_inputs])
        require(ours == theirs, "aliasing", lambda: f"{ours} instead of {theirs}")


def judge(program, seed):
    """Compares all calls. (statistics of dycl; "equal", "error": the same in both, "unstable", or "known").

    Raises Difference."""
    settings = program.settings
    with torch.no_grad():
        it = Judge(program, seed)
        accelerated = dycl.accelerate(it.function, pack=settings["pack"])
        calls = settings["calls"]
        for call in range(calls):
            which = call % 2
            actual = run(accelerated, it.sets[which])
            if call < 5 or call > calls - 3 or call % 16 == 0:
                try:
                    it.compare(which, actual)
                except Difference as difference:
                    difference.args = (f"call {call}, {difference.args[0]}",)
                    raise
        if settings["rewrite"]:
            it.renew()
            for call in range(3):
                try:
                    it.compare(call % 2, run(accelerated, it.sets[call % 2]))
                except Difference as difference:
                    difference.args = (f"call {call} after the constants were written, {difference.args[0]}",)
                    raise
        stats = dycl.stats(accelerated)
        require(stats["replays"] == 0 or it.may_replay(), "replay", "a segment could not run")
        if it.expected[0][2] is not None:
            return stats, "error"
        return stats, "known" if it.known else "unstable" if it.unstable else "equal"
