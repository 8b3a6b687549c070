"""What the suites of other people's samples share: fresh copies of inputs, runs with the same seed, and the comparison
of everything that a caller can tell: results, inputs afterwards, types, dtypes, sizes, strides, versions, identity and
sharing of memory, or the error."""

import os
import warnings
import zlib

import pytest
import torch
from torch.utils._pytree import tree_flatten

import dycl
from tolerance import bounds

FULL = os.environ.get("DYCL_TEST_FULL", "") not in ("", "0")
RUNS = 3  # a segment is seen new, as a plan of the first kind and as a tuned one


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """For modules that import it: samples are small, a team of threads would only wait for itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=(1, 2))
def threads(request):
    """For modules that import it: tests that take it run with one thread and with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def warn_always():
    """For modules that import it: what torch would warn of once in a process it warns of each time."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.fixture
def without_training():
    """As with DYCL_TRAIN=0."""
    from dycl import _core, _optimizer

    dycl.accelerate(lambda: None)
    before, following = _core.set_tracking(None), _optimizer._following
    _optimizer._following = False
    _core.optimizers_changed(False)
    yield
    _core.set_tracking(before)
    _optimizer._following = following


def lot(*what):
    """A number that only depends on what is named: which cases run by default is the same on every machine."""
    return zlib.crc32(" ".join(map(str, what)).encode())


def is_strided(x):
    """A dense tensor on the CPU whose elements are what its memory holds."""
    return isinstance(x, torch.Tensor) and x.layout == torch.strided and x.device.type == "cpu" \
        and not (x.is_quantized or x.is_nested or x.is_neg() or x.is_conj())


def copy_of(x):
    """A tensor of its own with the same sizes, strides and offset."""
    if x.layout != torch.strided or x.is_quantized or x.device.type != "cpu" or type(
        x) is not torch.Tensor or x.is_nested:
        return x
    copy = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone(), x.storage_offset(), x.size(), x.stride())
    copy = copy.conj() if x.is_conj() else copy
    return copy.requires_grad_() if x.requires_grad else copy


def map_tensors(function, x):
    if isinstance(x, torch.Tensor):
        return function(x)
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        return type(x)(map_tensors(function, y) for y in x)
    if type(x) is dict:
        return {k: map_tensors(function, v) for k, v in x.items()}
    return x


def tensors_of(tree):
    return [x for x in leaves_of(tree)[0] if isinstance(x, torch.Tensor)]


def leaves_of(tree):
    """As tree_flatten, which takes ten times as long for what nearly all of these are."""
    if type(tree) is torch.Tensor:
        return [tree], None
    if type(tree) not in (list, tuple, dict):
        return tree_flatten(tree)
    leaves, shapes = [], []
    for branch in tree.values() if type(tree) is dict else tree:
        below, shape = leaves_of(branch)
        leaves += below
        shapes.append(shape)
    return leaves, (type(tree), list(tree) if type(tree) is dict else None, shapes)


def run(function, inputs, grad=False):
    """(result, the inputs it ran on, error). Random numbers are the same in every run."""
    inputs = map_tensors(copy_of, inputs)
    torch.default_generator.manual_seed(4)
    with warnings.catch_warnings(), torch.set_grad_enabled(grad):
        warnings.simplefilter("ignore")
        try:
            return function(*inputs), inputs, None
        except Exception as error:  # noqa: BLE001
            return None, inputs, error


def _storage(x):
    return x.untyped_storage().data_ptr() if x.layout == torch.strided and x.numel() \
        and type(x) in (torch.Tensor, torch.nn.Parameter) else None


def relations(tensors):
    """Which tensors are one object, and which share memory at which distance."""
    table, storages = [], [_storage(t) for t in tensors]
    for i, a in enumerate(tensors):
        for j, b in enumerate(tensors[:i]):
            if a is b:
                table.append((i, j, "same"))
            elif storages[i] is not None and storages[i] == storages[j]:
                table.append((i, j, a.storage_offset() * a.element_size() - b.storage_offset() * b.element_size()))
    return table


def node_of(t):
    """What can be told of the node that made a tensor: dycl's have the names of eager's."""
    return None if t.grad_fn is None else (type(t.grad_fn).__name__, t.grad_fn.name())


def compare_leaf(w, g, tolerance, values=True, versions=True):
    if not isinstance(w, torch.Tensor):
        assert type(w) is type(g), (type(w), type(g))
        if isinstance(w, (int, float, complex)):
            assert w == g or (w != w and g != g) or (isinstance(w, (float, complex)) and abs(w - g) <= 1e-5 * abs(w)), \
                (w, g)
        elif isinstance(w, (str, bytes, torch.dtype, torch.Size, type(None))):
            assert w == g, (w, g)
        return
    for name in ("dtype", "layout", "device", "shape", "requires_grad", "is_leaf"):
        assert getattr(g, name) == getattr(w, name), (name, getattr(w, name), getattr(g, name))
    assert type(g) is type(w) and g.is_conj() == w.is_conj() and g.is_neg() == w.is_neg() and g.is_nested == w.is_nested
    assert node_of(g) == node_of(w), (w.grad_fn, g.grad_fn)
    if versions and not w.is_inference():
        assert g._version == w._version, f"version {g._version} instead of {w._version}"
    if w.layout == torch.strided and not w.is_nested:
        assert g.stride() == w.stride(), f"strides {g.stride()} instead of {w.stride()} of {tuple(w.shape)}"
        assert g.storage_offset() == w.storage_offset()
    if not values or w.device.type == "meta":
        return
    rtol, atol = tolerance(w.dtype)
    g, w = g.detach(), w.detach()
    if is_strided(w) and w.dtype != torch.complex32 and torch.equal(g, w):  # most are
        return
    torch.testing.assert_close(g, w, rtol=rtol, atol=atol, equal_nan=True)


def compare(tolerance, expected, actual, values=True, versions=True):
    """tolerance: from a dtype to (rtol, atol). versions: not those of gradients, which say how often torch's engine
    summed in place."""
    (want, want_inputs, want_error), (got, got_inputs, got_error) = expected, actual
    if want_error is not None or got_error is not None:
        assert type(got_error) is type(want_error), f"eager: {want_error!r}, dycl: {got_error!r}"
        assert str(got_error) == str(want_error), f"eager: {want_error!r}, dycl: {got_error!r}"
        want = got = None
    (want_leaves, want_shape), (got_leaves, got_shape) = leaves_of(want), leaves_of(got)
    assert want_shape == got_shape and type(want) is type(got)
    for where, w, g in [("result", *pair) for pair in zip(want_leaves, got_leaves)] + [
        ("input", *pair) for pair in zip(leaves_of(want_inputs)[0], leaves_of(got_inputs)[0])
    ]:
        try:
            compare_leaf(w, g, tolerance, values, versions)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from None
    want_table, got_table = relations(tensors_of([want_leaves, want_inputs])), relations(
        tensors_of([got_leaves, got_inputs]))
    assert got_table == want_table, f"other aliasing: eager {want_table}, dycl {got_table}"


def check(name, function, inputs, what, *, grad=False, values=True, runs=RUNS):
    """Runs function(*inputs) in eager torch, then accelerated, and compares. name: an operator's, for the tolerance.
    what: a text, or what makes it where it is needed. Returns the statistics."""
    expected = run(function, inputs, grad)
    accelerated = dycl.accelerate(function)
    for i in range(runs):
        try:
            compare(lambda dtype: bounds(name, dtype), expected, run(accelerated, inputs, grad), values)
        except AssertionError as error:
            what = what() if callable(what) else what
            raise AssertionError(f"run {i}, {what}\n{error}\n{dycl.explain(accelerated)}") from None
    return dycl.stats(accelerated)
