"""Every operator of torch's own test database, in eager and through dycl: values, dtypes, sizes, strides, aliasing and errors must agree.

Each sample runs as a function on plain tensors, as a method and in place on lazy tensors, and with non-contiguous operands; every form three times, so
that a segment is seen new, as a plan of the first kind and as a tuned one. By default a fixed subset of the samples runs (operators that dycl
has no binding for get few); DYCL_TEST_FULL=1 runs all; DYCL_TEST_OPERATORS="add mul" runs those only. DYCL_ISA=scalar|avx2|avx512, set before the
start, chooses the kernels.
"""

import itertools
import os
import warnings
import zlib

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

import dycl
from dycl import _core
from tolerance import bounds

FULL = os.environ.get("DYCL_TEST_FULL", "") not in ("", "0")
RUNS = 3
ONLY = os.environ.get("DYCL_TEST_OPERATORS", "").split()
SAMPLES_BOUND, SAMPLES_OTHER, LOOK_AT = 3, 1, 24  # how many samples; of the first how many

# values that mean nothing: only what they look like is compared
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}
# what eager itself does not repeat
SKIP = {
    "nn.functional.fractional_max_pool2d": "draws its own random numbers per call",
    "nn.functional.fractional_max_pool3d": "draws its own random numbers per call",
}

dycl.accelerate(lambda: None)  # finds torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The samples are small: a team of threads would only wait for itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _bound(op):
    return any(f is not None and _core.bound(f) for f in (op.op, op.method_variant, op.inplace_variant))


def _cases():
    for op in op_db:
        if ONLY and op.full_name not in ONLY:
            continue
        bound = _bound(op)
        for dtype in (torch.float32, torch.float64, torch.int64, torch.bool):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            if not FULL and not bound and zlib.crc32(f"{op.full_name} {dtype}".encode()) % (4 if dtype == torch.float32 else 16):
                continue
            name = f"{op.full_name}-{str(dtype).removeprefix('torch.')}"
            yield pytest.param(op, dtype, bound, id=name, marks=() if bound else pytest.mark.unbound)


def _samples(op, dtype, bound):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.sample_inputs("cpu", dtype, requires_grad=False)
        if FULL:
            yield from samples
            return
        samples = list(itertools.islice(samples, LOOK_AT))
    order = sorted(range(len(samples)), key=lambda i: zlib.crc32(f"{op.full_name} {dtype} {i}".encode()))
    for i in sorted(order[: SAMPLES_BOUND if bound else SAMPLES_OTHER]):
        yield samples[i]


def _copy(x):
    """A tensor of its own with the same sizes, strides and offset."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.is_quantized or x.device.type != "cpu" or type(x) is not torch.Tensor:
        return x
    copy = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone(), x.storage_offset(), x.size(), x.stride())
    return copy.conj() if x.is_conj() else copy


def _map(function, x):
    if isinstance(x, torch.Tensor):
        return function(x)
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        return type(x)(_map(function, y) for y in x)
    if isinstance(x, dict):
        return {k: _map(function, v) for k, v in x.items()}
    return x


def _lazy(x):
    """Inside a region: a recorded copy, where one has the original's strides."""
    return _map(lambda t: t.clone() if type(t) is torch.Tensor and t.layout == torch.strided and not t.is_conj() and not t.is_neg() else t, x)


def _plain_call(f):
    return lambda first, args, kwargs: f(first, *args, **kwargs)


def _lazy_call(f):
    def call(first, args, kwargs):
        return f(_lazy(first), *_lazy(args), **_lazy(kwargs))

    return call


def _in_place_call(f):
    def call(first, args, kwargs):
        target = first.clone()
        result = f(target, *_lazy(args), **_lazy(kwargs))
        return result, target, result is target

    return call


def _forms(op):
    yield "function", _plain_call(op.op), False
    yield "noncontiguous", _plain_call(op.op), True
    yield "method", _lazy_call(op.method_variant if op.method_variant is not None else op.op), False
    if op.inplace_variant is not None:
        yield "inplace", _in_place_call(op.inplace_variant), False


def _run(function, inputs):
    """Its result and the inputs it ran on, or the error. Random numbers are the same in every run."""
    inputs = _map(_copy, inputs)
    torch.manual_seed(4)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return function(*inputs), inputs, None
        except Exception as error:
            return None, inputs, error


def _storage(x):
    return x.untyped_storage().data_ptr() if x.layout == torch.strided and x.numel() else None


def _aliases(results, inputs):
    """Which tensors are which input, or share its memory."""
    tensors = [x for x in tree_flatten(inputs)[0] if isinstance(x, torch.Tensor)]
    answer = []
    for r in results:
        if not isinstance(r, torch.Tensor):
            continue
        answer.append([(r is x, _storage(r) is not None and _storage(x) is not None and _storage(r) == _storage(x)) for x in tensors])
    return answer


def _compare(name, expected, actual):
    (want, want_inputs, want_error), (got, got_inputs, got_error) = expected, actual
    if want_error is not None or got_error is not None:
        assert type(got_error) is type(want_error), f"eager: {want_error!r}, dycl: {got_error!r}"
        assert str(got_error) == str(want_error)
        return
    want_leaves, want_shape = tree_flatten(want)
    got_leaves, got_shape = tree_flatten(got)
    assert want_shape == got_shape and type(want) is type(got)
    for w, g in zip(want_leaves, got_leaves):
        _compare_leaf(name, w, g)
    assert _aliases(got_leaves, got_inputs) == _aliases(want_leaves, want_inputs), "other aliasing"
    for w, g in zip(tree_flatten(want_inputs)[0], tree_flatten(got_inputs)[0]):
        _compare_leaf(name, w, g)


def _compare_leaf(name, w, g):
    if not isinstance(w, torch.Tensor):
        assert type(w) is type(g)
        assert w == g or (w != w and g != g) or (isinstance(w, float) and abs(w - g) <= 1e-5 * abs(w)) or isinstance(w, torch.Generator)
        return
    assert type(g) is type(w) and g.dtype == w.dtype and g.layout == w.layout and g.shape == w.shape and g.is_conj() == w.is_conj()
    if w.layout == torch.strided:
        assert g.stride() == w.stride(), f"strides {g.stride()} instead of {w.stride()} of {tuple(w.shape)}"
        assert g.storage_offset() == w.storage_offset()
    if name not in UNINITIALISED:
        rtol, atol = bounds(name, w.dtype)
        torch.testing.assert_close(g, w, rtol=rtol, atol=atol, equal_nan=True)


def _check(op, form, function, inputs, what):
    expected = _run(function, inputs)
    accelerated = dycl.accelerate(function)
    for i in range(RUNS):
        try:
            _compare(op.full_name, expected, _run(accelerated, inputs))
        except AssertionError as error:
            raise AssertionError(f"{form}, run {i}, {what}\n{error}\n{dycl.explain(accelerated)}") from error


@pytest.mark.parametrize("op, dtype, bound", list(_cases()))
def test_operator(op, dtype, bound):
    if op.full_name in SKIP:
        pytest.skip(SKIP[op.full_name])
    ran = 0
    for sample in _samples(op, dtype, bound):
        for form, function, noncontiguous in _forms(op):
            if not bound and form == "noncontiguous":
                continue
            try:
                s = sample.noncontiguous() if noncontiguous else sample
            except RuntimeError:
                continue  # the sample holds something that has no non-contiguous form
            _check(op, form, function, (s.input, s.args, s.kwargs), s.summary())
        ran += 1
    if not ran:
        pytest.skip("no samples")


def _error_cases():
    for op in op_db:
        if op.error_inputs_func is not None and _bound(op) and not (ONLY and op.full_name not in ONLY):
            yield pytest.param(op, id=op.full_name)


@pytest.mark.parametrize("op", list(_error_cases()))
def test_errors(op):
    """What torch rejects, dycl rejects with the same error."""
    for error_input in op.error_inputs("cpu"):
        s = error_input.sample_input
        for form, function, _ in _forms(op):
            if form in ("function", "method"):
                _check(op, form, function, (s.input, s.args, s.kwargs), s.summary())
