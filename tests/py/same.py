"""Runs a program in eager torch and accelerated, with the same seeds, and compares everything that a program can tell:
results (values, types, dtypes, sizes, strides, aliasing, identity), what became of the arguments, exceptions (type,
message, line), warnings, output, and torch's state.

The functions that are compared live in the test files; whatever one needs to know beyond the return value (a global, an
attribute), it returns.
"""

import collections
import dataclasses
import io
import contextlib
import warnings

import dycl
import numpy
import pytest
import torch
from suite import node_of
from tolerance import bounds

Raised = collections.namedtuple("Raised", "type message line cause")


def user_line(error, filename):
    """The line of the innermost frame of the test file."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def outcome(function, arguments, filename):
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001
        cause = error.__cause__
        return Raised(type(error), str(error), user_line(error, filename), cause and (type(cause), str(cause)))


def state_of_torch():
    return {
        "rng": torch.get_rng_state().numpy().tobytes(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "keys": (str(torch._C._dispatch_tls_local_include_set()), str(torch._C._dispatch_tls_local_exclude_set())),
    }


def run(function, arguments, calls, filename, grad):
    """What happened: outcomes, arguments afterwards, warnings (text and line), printed text, torch's state."""
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed), torch.set_grad_enabled(
        grad):
        warnings.simplefilter("always")
        before = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        outcomes = [outcome(function, arguments, filename) for _ in range(calls)]
        state = state_of_torch()
        torch.set_warn_always(before)
    # those come once
    heard = {(w.category, str(w.message)) for w in caught
             if not issubclass(w.category, (DeprecationWarning, FutureWarning))}
    return outcomes, arguments, sorted(heard, key=str), printed.getvalue(), state


def tensors_of(tree, found, seen):
    if id(tree) in seen:
        return
    if isinstance(tree, torch.Tensor):
        found.append(tree)
        seen.add(id(tree))
        tensors_of(vars(tree), found, seen)
    elif isinstance(tree, dict):
        for branch in tree.values():
            tensors_of(branch, found, seen)
    elif isinstance(tree, (list, tuple)):
        for branch in tree:
            tensors_of(branch, found, seen)
    elif isinstance(tree, torch.nn.Module):
        for branch in (*tree.parameters(), *tree.buffers()):
            tensors_of(branch, found, seen)
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        tensors_of(vars(tree), found, seen)


def relations(tensors):
    """Which tensors are one object, and which share memory at which distance."""
    plain = [t for t in tensors if t.layout == torch.strided and t.device.type == "cpu" and "inner" not in vars(t)]
    table = []
    for i, a in enumerate(plain):
        for j, b in enumerate(plain[:i]):
            if a is b:
                table.append((i, j, "same"))
            elif a.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
                table.append((i, j, a.storage_offset() * a.element_size() - b.storage_offset() * b.element_size()))
    return table


def compare_tensors(want, got, where, like, versions):
    assert type(got) is type(want), (where, type(want), type(got))
    for name in ("dtype", "shape", "layout", "device", "requires_grad", "is_leaf"):
        assert getattr(got, name) == getattr(want, name), (where, name, getattr(want, name), getattr(got, name))
    assert node_of(got) == node_of(want), (where, want.grad_fn, got.grad_fn)
    if want._base is None and want.layout == torch.strided and torch._C._storage_Use_Count(
        want.untyped_storage()._cdata) <= 2:
        assert got._base is None, (where, "a result that owns its memory has a base")
    assert got._is_view() or not want._is_view(), (where, "a view of", want._base.shape, "has no base")
    assert got.is_inference() == want.is_inference(), (where, "inference", want.is_inference())
    if versions and not want.is_inference():
        assert got._version == want._version, (where, "version", want._version, got._version)
    if "inner" in vars(want):  # a wrapper subclass of the tests
        return compare_tensors(want.inner, got.inner, where, like, versions)
    if want.layout != torch.strided or want.device.type != "cpu":
        want, got = want.detach().to_dense(), got.detach().to_dense()
    assert got.stride() == want.stride(), (where, "strides", want.stride(), got.stride())
    assert got.storage_offset() == want.storage_offset(), (where, "offset", want.storage_offset(), got.storage_offset())
    rtol, atol = bounds(like, want.dtype)
    torch.testing.assert_close(got.detach(), want.detach(), rtol=rtol, atol=atol, equal_nan=True,
                               msg=lambda m: f"{where}: {m}")
    compare(vars(want), vars(got), f"{where}.__dict__", like, versions)
    if want.grad is not None or got.grad is not None:
        compare_tensors(want.grad, got.grad, f"{where}.grad", like, False)


def compare(want, got, where, like, versions=True):
    if isinstance(want, type):  # type(x) of a result may be another object
        assert got == want, (where, want, got)
        return
    assert type(got) is type(want), (where, type(want), type(got), want, got)
    if isinstance(want, torch.Tensor):
        compare_tensors(want, got, where, like, versions)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), (where, want, got)
        for i, (a, b) in enumerate(zip(want, got)):
            compare(a, b, f"{where}[{i}]", like, versions)
    elif isinstance(want, dict):
        assert list(got) == list(want), (where, list(want), list(got))
        for key in want:
            compare(want[key], got[key], f"{where}[{key!r}]", like, versions)
    elif isinstance(want, torch.nn.Module):
        compare(want.state_dict(), got.state_dict(), f"{where}.state_dict()", like, versions)
        compare([p.grad for p in want.parameters()], [p.grad for p in got.parameters()], f"{where}.grad", like,
                False)
    elif isinstance(want, numpy.ndarray):
        assert want.dtype == got.dtype and want.shape == got.shape and want.strides == got.strides, where
        rtol, atol = bounds(like, torch.float32)
        numpy.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    elif dataclasses.is_dataclass(want) and not isinstance(want, type):
        compare(vars(want), vars(got), where, like, versions)
    elif isinstance(want, (float, complex)):
        rtol, atol = bounds(like, torch.float32)
        assert want == got or abs(want - got) <= atol + rtol * abs(want) or (want != want and got != got), \
            (where, want, got)
    elif type(want).__eq__ is not object.__eq__:
        assert got == want, (where, want, got)


def same(program, make, *, calls=3, grad=False, like="exp", recorded=True, accelerate=None, between=lambda: None,
         versions=True):
    """Runs `program(*make())` `calls` times on the same arguments, eager and accelerated, and compares. Returns dycl's
    statistics.

    like: an operator whose tolerance the results have (tolerance.py): "matmul" where there are products, "mean" where
    there are sums. recorded: at least one operator must have been recorded (True), none (False), or either (None).
    between: called before each of the two runs, e.g. to clear a global. accelerate: from the arguments to what is
    called instead of the program (default: the accelerated program), e.g. a model among them. versions: False where
    gradients are among the results: their versions say how often torch's engine summed in place. Those in `.grad` are
    never compared.
    """
    filename = program.__code__.co_filename
    between()
    torch.manual_seed(5)
    want = run(program, make(), calls, filename, grad)
    between()
    torch.manual_seed(5)
    arguments = make()
    target = dycl.accelerate(program if accelerate is None else accelerate(*arguments))
    got = run(target if accelerate is None else program, arguments, calls, filename, grad)
    for name, a, b in zip(("result", "arguments", "warnings", "printed", "state"), want, got):
        if name == "printed":
            assert b == a, (a, b)
        else:
            compare(a, b, name, like, versions)
    table = []
    for side in (want, got):
        tensors = []
        tensors_of(side[:2], tensors, set())
        table.append(relations(tensors))
    assert table[0] == table[1], ("aliasing", table)
    stats = dycl.stats(target)
    if recorded is not None:
        assert (stats["recorded"] > 0) == recorded, stats
    return stats


def two():
    return torch.randn(4, 6), torch.randn(4, 6)


class Programs:
    """The programs of a test file: `@program()` (with the function that makes the arguments, and options of `same`)
    registers one, and `pytest.mark.parametrize("function, make, options", program.cases)` runs each, eager and
    accelerated."""

    def __init__(self):
        self.cases = []

    def __call__(self, make=two, **options):
        def register(function):
            self.cases.append(pytest.param(function, make, options, id=function.__name__))
            return function

        return register
