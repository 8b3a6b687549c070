"""Gradients through dycl against torch's: every operator of torch's test database with its samples, as
they are, rounded to a coarse grid, where ties, bends and zeros meet, and all zero. The operator stands alone in a
region, and between recorded operators.

Compared are the results, which of them require gradients, the gradients of all leaves (None too) for one random
cotangent, and errors; three times each: a segment is seen new, as a plan of the first kind and as a tuned one.
DYCL_TEST_FULL=1 takes all samples, DYCL_TEST_OPERATORS="add mul" those operators only."""

import itertools
import os
import warnings

import pytest
import torch

import dycl
from dycl import _core
from samples import op_db
from suite import FULL, RUNS, is_strided, lot, map_tensors, one_thread, tensors_of  # noqa: F401 (a fixture)

ONLY = os.environ.get("DYCL_TEST_OPERATORS", "").split()
DTYPES = (torch.float32, torch.float64)
SAMPLES = 2

dycl.accelerate(lambda: None)  # finds torch


def _bound(op):
    return any(f is not None and _core.bound(f) for f in (op.op, op.method_variant))


def _cases():
    for op in op_db:
        if ONLY and op.full_name not in ONLY:
            continue
        for dtype in DTYPES:
            if dtype not in op.supported_backward_dtypes("cpu") or not op.supports_autograd:
                continue
            if not (FULL or ONLY or _bound(op)) and lot(op.full_name, dtype) % 4:
                continue
            yield pytest.param(op, dtype, id=f"{op.full_name}-{str(dtype).removeprefix('torch.')}")


def _samples(op, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), None if FULL else 24))
    order = sorted(range(len(samples)), key=lambda i: lot(op.full_name, dtype, i))
    for i in sorted(order if FULL else order[: SAMPLES if dtype == torch.float32 else 1]):
        yield i, samples[i]


def _leaf(t, grid):
    values = t.detach().clone()
    if grid and values.dtype.is_floating_point:
        values = (values * 2).round() / 2 if grid == "grid" else values * 0
    return values.requires_grad_(t.requires_grad)


def _alone(f):
    return lambda first, args, kwargs: f(first, *args, **kwargs)


def _between(f):
    def between(first, args, kwargs):
        def scaled(t):
            return t * 1.0 if t.dtype.is_floating_point else t

        result = f(map_tensors(scaled, first), *map_tensors(scaled, args), **map_tensors(scaled, kwargs))
        return map_tensors(lambda t: t * 2 + 1 if t.dtype.is_floating_point else t, result)

    return between


def fresh_operands(sample, grid):
    """Leaves of their own in place of the sample's tensors: all of them, and (first, args, kwargs)."""
    leaves = []

    def fresh(t):
        leaves.append(_leaf(t, grid))
        return leaves[-1]

    return leaves, [map_tensors(fresh, x) for x in (sample.input, sample.args, sample.kwargs)]


def outcome(program, sample, grid):
    """Results, their requires_grad and the leaves' gradients; or the error's type."""
    leaves, operands = fresh_operands(sample, grid)
    torch.manual_seed(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = tensors_of(program(*operands))
            wanted = [r for r in results if r.requires_grad]
            torch.manual_seed(2)
            if wanted:
                torch.autograd.backward(wanted, [torch.randn(r.shape).to(r.dtype) for r in wanted])
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return type(error).__name__, [], []
    return [r.requires_grad for r in results], [r.detach() for r in results], [leaf.grad for leaf in leaves]


def agree(a, b):
    """Equal, but for rounding: some hundred steps of the largest number that is finite."""
    if a is None or b is None:
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if torch.equal(a, b):
        return True
    if not a.dtype.is_floating_point and not a.dtype.is_complex:
        return False
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)) or not torch.equal(torch.isnan(a), torch.isnan(b)):
        return False
    if not torch.equal(a[~finite & ~torch.isnan(a)], b[~finite & ~torch.isnan(b)]):
        return False
    if not finite.any():
        return True
    scale = max(1.0, a[finite].abs().max().item())
    return (a[finite] - b[finite]).abs().max().item() <= 256 * torch.finfo(a.dtype).eps * scale


def _double(sample):
    def double(t):
        return t.detach().double().requires_grad_(t.requires_grad) if t.dtype == torch.float32 else t

    return type(sample)(map_tensors(double, sample.input), args=map_tensors(double, sample.args),
                        kwargs=map_tensors(double, sample.kwargs))


def nearer(program, sample, grid, kind, i, x, y):
    """Where both have rounding errors: dycl's is no larger than twice torch's, measured against float64."""
    if x is None or y is None or x.dtype != torch.float32:
        return False
    truth = outcome(program, _double(sample), grid)[kind][i]
    return bool(((y - truth).abs().max() <= 2 * (x - truth).abs().max()).item())


def compare(program, sample, grid, what):
    expected = outcome(program, sample, grid)
    if not all(is_strided(r) for r in expected[1]):
        return
    accelerated = dycl.accelerate(program)
    for run in range(RUNS):
        found = outcome(accelerated, sample, grid)
        assert found[0] == expected[0], f"{what}, run {run}: requires_grad or the error"
        for kind, name in ((1, "result"), (2, "gradient")):
            for i, (x, y) in enumerate(zip(expected[kind], found[kind], strict=True)):
                assert agree(x, y) or nearer(program, sample, grid, kind, i, x, y), \
                    f"{what}, run {run}: {name} {i}: {x} and {y}"


@pytest.mark.parametrize("op, dtype", _cases())
def test_operators(op, dtype):
    for i, sample in _samples(op, dtype):
        for form in (_alone, _between):
            for grid in ("", "grid", "zeros"):
                compare(form(op.op), sample, grid, f"sample {i} {form.__name__} {grid}")
