"""Every operator of torch's own test database, whether dycl represents it or not, in eager and through dycl: values,
dtypes, sizes, strides, versions, aliasing, what became of the inputs, and errors must agree.

A sample runs in several forms, so that plain, lazy, non-contiguous and shared operands all reach the operator, and so
that recorded operators follow:

    function        op(plain arguments)                        noncontiguous   the same with non-contiguous arguments
    chain           op(lazy arguments), recorded operators     view            op(lazy views with gaps)
                    behind it, which also read the arguments
    written         op(lazy arguments), then writes to the     inplace         op_ on a lazy tensor, on the argument
    itself,
                    results, which views must show                             and on a view of a lazy tensor
    out             op(..., out=): fitting, lazy, with gaps, too small

each three times: a segment is seen new, as a plan of the first kind and as a tuned one. By default a fixed subset of
the samples runs (operators that dycl has no binding for get few); DYCL_TEST_FULL=1 runs all; DYCL_TEST_OPERATORS="add
mul" runs those only. DYCL_ISA=scalar|avx2|avx512, set before the start, chooses the kernels. What is known to differ
stands in known.py.
"""

import itertools
import os
import warnings

import pytest
import torch
from torch.utils._pytree import tree_map

import dycl
from dycl import _core
from known import is_known, marks
from samples import op_db
from suite import FULL, check, copy_of, is_strided, lot, map_tensors, one_thread, tensors_of  # noqa: F401 (a fixture)

ONLY = os.environ.get("DYCL_TEST_OPERATORS", "").split()
SAMPLES_BOUND, SAMPLES_OTHER, LOOK_AT = 2, 1, 24  # how many samples (of float32); of the first how many
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.float16)

# values that mean nothing: only what they look like is compared
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
                 "resize_as_"}

dycl.accelerate(lambda: None)  # finds torch


def _bound(op):
    return any(f is not None and _core.bound(f) for f in (op.op, op.method_variant, op.inplace_variant))


def _cases():
    for op in op_db:
        if ONLY and op.full_name not in ONLY:
            continue
        bound = _bound(op)
        for dtype in DTYPES:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            name = f"{op.full_name}-{str(dtype).removeprefix('torch.')}"
            if not (FULL or ONLY or bound or is_known("op_db", name)) and lot(op.full_name, dtype) % (3
                    if dtype == torch.float32 else 16):
                continue
            yield pytest.param(op, dtype, bound, id=name,
                               marks=[*marks("op_db", name), *(() if bound else [pytest.mark.unbound])])


def _samples(op, dtype, bound):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.sample_inputs("cpu", dtype, requires_grad=False)
        if FULL or is_known("op_db", f"{op.full_name}-{str(dtype).removeprefix('torch.')}"):
            yield from samples
            return
        samples = list(itertools.islice(samples, LOOK_AT))
    order = sorted(range(len(samples)), key=lambda i: lot(op.full_name, dtype, i))
    for i in sorted(order[: SAMPLES_BOUND if bound and dtype == torch.float32 else SAMPLES_OTHER]):
        yield samples[i]


# ---- The forms. Each is a program of (first, args, kwargs)


def _lazy(x):
    """Inside a region: a recorded copy, where one has the original's strides."""
    return map_tensors(lambda t: t.clone() if is_strided(t) else t, x)


def _gaps(x):
    """Inside a region: a recorded copy that is a view with gaps."""
    return map_tensors(lambda t: torch.stack([t, t], -1)[..., 1] if is_strided(t) else t, x)


def _writable(t):
    return is_strided(t) and all(n < 2 or s for n, s in zip(t.shape, t.stride()))


def _behind(result):
    """Recorded operators that read the result."""
    return [t.reshape(-1).logical_not() if t.dtype == torch.bool else t.unsqueeze(0) + 0 for t in tensors_of(result)
            if is_strided(t)]


def _function(f):
    return lambda first, args, kwargs: f(first, *args, **kwargs)


def _chain(f, prepare=_lazy):
    def chain(first, args, kwargs):
        inputs = prepare(first), prepare(args), prepare(kwargs)
        result = f(inputs[0], *inputs[1], **inputs[2])
        return result, _behind(result), inputs, _behind(inputs)

    return chain


def _written(f):
    def written(first, args, kwargs):
        inputs = _lazy(first), _lazy(args), _lazy(kwargs)
        before = _behind(inputs)
        result = f(inputs[0], *inputs[1], **inputs[2])
        for t in tensors_of(result):
            if _writable(t):
                t.logical_not_() if t.dtype == torch.bool else t.add_(1)
        return result, inputs, before, _behind(result)

    return written


def _in_place_lazy(f):
    def in_place_lazy(first, args, kwargs):
        target = first.clone()
        result = f(target, *_lazy(args), **_lazy(kwargs))
        return result, target, result is target, _behind(target)

    return in_place_lazy


def _in_place_view(f):
    def in_place_view(first, args, kwargs):
        base = torch.stack([first, first], -1)
        view = base.select(-1, 0)
        result = f(view, *_lazy(args), **_lazy(kwargs))
        return result, base, view, result is view, _behind(base)

    return in_place_view


def _out(f, make):
    """The results of an eager call say what `out` has to look like; `make` makes one of them inside the region."""

    def out(first, args, kwargs, like):
        target = tree_map(lambda t: make(t) if isinstance(t, torch.Tensor) else t, like)
        result = f(first, *args, **kwargs, out=target)
        return result, target, result is target, _behind(target)

    return out


OUTS = {
    "out": lambda t: t,
    "out lazy": lambda t: t.clone(),
    "out gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    "out small": lambda t: t.reshape(-1)[: max(t.numel() - 1, 0)].clone(),
}


def _forms(op, bound):
    yield "function", _function(op.op)
    yield "chain", _chain(op.op)
    if bound or FULL:
        yield "noncontiguous", _function(op.op)
        yield "view", _chain(op.op, _gaps)
        if op.method_variant is not None:
            yield "method", _chain(op.method_variant)
    yield "written", _written(op.op)
    if op.inplace_variant is not None:
        yield "inplace lazy", _in_place_lazy(op.inplace_variant)
        yield "inplace", _function(op.inplace_variant)
        yield "inplace view", _in_place_view(op.inplace_variant)


def _check_out(op, inputs, what, bound):
    first, args, kwargs = map_tensors(copy_of, inputs)
    torch.manual_seed(4)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            like = op.op(first, *args, **kwargs)
        except Exception:  # noqa: BLE001
            return
    if not tensors_of(like) or not all(is_strided(t) for t in tensors_of(like)):
        return
    for name, make in OUTS.items():
        if FULL or bound or name == "out lazy":
            check(op.full_name, _out(op.op, make), (*inputs, like), lambda: f"{name}, {what()}",
                  values=op.name not in UNINITIALISED and name != "out small")


@pytest.mark.parametrize("op, dtype, bound", list(_cases()))
def test_operator(op, dtype, bound):
    ran = 0
    for sample in _samples(op, dtype, bound):
        for form, function in _forms(op, bound):
            try:
                s = sample.noncontiguous() if form == "noncontiguous" else sample
            except RuntimeError:
                continue  # the sample holds something that has no non-contiguous form
            if form in ("inplace view", "inplace lazy") and not is_strided(s.input):
                continue
            check(op.full_name, function, (s.input, s.args, s.kwargs), lambda: f"{form}, {s.summary()}",
                  values=op.name not in UNINITIALISED)
        if op.supports_out:
            _check_out(op, (sample.input, sample.args, sample.kwargs), sample.summary, bound)
        ran += 1
    if not ran:
        pytest.skip("no samples")


def _error_cases():
    for op in op_db:
        if op.error_inputs_func is not None and not (ONLY and op.full_name not in ONLY):
            bound = _bound(op)
            if FULL or ONLY or bound or lot(op.full_name) % 3 == 0 or is_known("op_db errors", op.full_name):
                yield pytest.param(op, id=op.full_name, marks=marks("op_db errors", op.full_name))


@pytest.mark.parametrize("op", list(_error_cases()))
def test_errors(op):
    """What torch rejects, dycl rejects with the same error."""
    for error_input in op.error_inputs("cpu"):
        s = error_input.sample_input
        for form, function in (("function", _function(op.op)), ("chain", _chain(op.op)),
                               ("method", op.method_variant and _chain(op.method_variant))):
            if function:
                check(op.full_name, function, (s.input, s.args, s.kwargs), lambda: f"{form}, {s.summary()}")
