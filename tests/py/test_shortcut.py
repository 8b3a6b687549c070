"""torch's builtin functions record without torch's argument parser: same results, same errors, same order of modes and
subclasses."""

import os
import time

import pytest
import torch
import torch.nn.functional as F
from same import same
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

import dycl


CALLS = {
    "positional": lambda p: torch.add(p, p),
    "keywords": lambda p: torch.add(p, other=p, alpha=2),
    "only keywords": lambda p: torch.add(input=p, other=p),
    "one lazy argument of two": lambda p: torch.add(torch.ones(4), p),
    "sequence": lambda p: torch.cat([p, p], dim=-1),
    "tuple": lambda p: torch.stack((p, p)),
    "nn": lambda p: F.gelu(p, approximate="tanh"),
    "in place": lambda p: torch.relu_(p),
    "out": lambda p: torch.add(p, p, out=torch.empty(4, 4)),
    "unpacked": lambda p: torch.add(*(p, p), **{"alpha": 3}),
    "no tensor": lambda p: p + torch.ones(4, 4),
    "third argument": lambda p: torch.where(torch.ones(4, 4) > 0, torch.ones(4, 4), p),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    same(lambda x: CALLS[name](x * 1.5), lambda: (torch.randn(4, 4),))


WRONG = {
    "shape": lambda p: torch.add(p, torch.ones(3)),
    "keyword": lambda p: torch.add(p, p, beta=2),
    "count": lambda p: torch.add(p),
    "type": lambda p: torch.add(p, "x"),
    "dimension": lambda p: torch.cat([p, p], dim=7),
    "number for a tensor": lambda p: torch.atan2(p, 1),
    "number for a tensor, method": lambda p: p.maximum(1),
    "tensor of rank 0 for a number": lambda p: torch.leaky_relu(p, p),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_torchs(name):
    same(lambda x: WRONG[name](x * 2), lambda: (torch.randn(4, 4),))


class Seen(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_program_sees_the_call():
    def function(x):
        y = x * 2
        with Seen() as seen:
            y = torch.add(y, F.gelu(y))
        names.append(seen.names)
        return y

    names = []
    same(function, lambda: (torch.randn(4, 4),), recorded=None)
    assert names == [names[0]] * len(names) and names[0] == ["gelu", "add"]


class Own(torch.Tensor):
    asked = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Own.asked += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_of_the_program_is_asked():
    own = torch.ones(4).as_subclass(Own)
    Own.asked = 0
    with torch.no_grad():
        want = torch.add(torch.ones(4) * 2, own)
        once = Own.asked
        got = dycl.accelerate(lambda x: torch.add(x * 2, own))(torch.ones(4))
    assert type(got) is type(want) is Own and Own.asked == 2 * once


@pytest.mark.skipif("DYCL_PUBLIC_API" in os.environ, reason="what else it asks there takes as long")
def test_no_torch_function_on_the_way():
    """Nothing but time tells whether the shortcut recorded, or our mode, which torch asks: the shortcut takes a tenth
    of what a mode in Python does."""

    def least(y):
        times = []
        for _ in range(50):
            start = time.perf_counter_ns()
            for _ in range(20):
                F.gelu(y)
            times.append(time.perf_counter_ns() - start)
        return min(times)

    def function(x):
        y = x * 2
        ours = least(y)
        with BaseTorchFunctionMode():
            return ours, least(y)

    run = dycl.accelerate(function)
    with torch.no_grad():
        found = [run(torch.randn(8)) for _ in range(5)]
    assert min(ours for ours, _ in found) < 0.2 * min(theirs for _, theirs in found)


def functional(x, weight):
    h = F.relu(x + 0.25)
    before = h
    results = [F.relu(h, inplace=True) is before]
    for function in (F.leaky_relu, F.elu, F.silu, F.hardswish, F.hardsigmoid, F.hardtanh, F.relu6, F.mish):
        h = h * 1.5 - 0.1
        again = function(h, inplace=True)
        results += [again is h, function(again * 2)]
    h = F.threshold(h - 0.1, 0.2, 7.0, inplace=True)
    results += [F.dropout(h, 0.5, False) is h, F.dropout(h, 0.5, False, inplace=True) is h]
    results += [F.softmax(h, -1), F.log_softmax(h, 1), F.layer_norm(h, (8,), weight), F.normalize(h, dim=1),
                F.pad(h, (1, 2)), F.softmin(h, 0), F.glu(h, -1)]
    pixels = h.reshape(1, 2, 4, -1)
    return (results, F.group_norm(pixels, 2), F.adaptive_avg_pool2d(pixels, 2), F.max_pool2d(pixels, 2),
            F.interpolate(pixels, scale_factor=2), F.mse_loss(h, h * 0.5))


def test_python_functions_of_torch_run_their_body(monkeypatch):
    """What torch.nn.functional writes in Python is recorded as what it calls, as eager calls it, and not through
    handle_torch_function."""
    x, weight = torch.randn(6, 8), torch.rand(8)
    with torch.no_grad():
        expected = functional(x, weight)
        accelerated = dycl.accelerate(functional)
        same_results(accelerated(x, weight), expected)
        overridden = []
        handle = F.handle_torch_function
        monkeypatch.setattr(F, "handle_torch_function", lambda function, *rest, **more: overridden.append(function)
                            or handle(function, *rest, **more))
        same_results(accelerated(x, weight), expected)
    assert overridden == [F.interpolate, F.mse_loss]  # what these two call is not bound
    assert dycl.stats(accelerated)["torch"] == 0


def same_results(got, expected):
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected):
            same_results(a, b)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    else:
        assert got == expected


class Doubling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is F.layer_norm:
            return "asked"
        return super().__torch_function__(function, types, args, kwargs or {})


def test_who_overrides_a_python_function_is_asked():
    weight = torch.rand(8).as_subclass(Doubling)

    def program(x):
        h = x + 1
        return F.layer_norm(h, (8,), weight), F.layer_norm(h, (8,))

    x = torch.randn(2, 8)
    with torch.no_grad():
        expected, got = program(x), dycl.accelerate(program)(x)
    assert got[0] == expected[0] == "asked"
    torch.testing.assert_close(got[1], expected[1], rtol=1e-5, atol=1e-6)
