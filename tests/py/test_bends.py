"""First and second derivatives of activations at their bends, at zeros of both signs, and at NaN and infinities."""

import math

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

BENDS = (0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 20.0, 2.0)
SPECIAL = (math.nan, math.inf, -math.inf)

FUNCTIONS = {
    "elu": F.elu, "elu of half": lambda x: F.elu(x, 0.5), "celu": F.celu, "celu of two": lambda x: F.celu(x, 2.0),
    "celu turned": lambda x: F.celu(x, -1.5), "selu": F.selu, "softplus": F.softplus,
    "softplus from 0": lambda x: F.softplus(x, 1.0, 0.0), "softplus from 3": lambda x: F.softplus(x, 2.0, 6.0),
    "relu": F.relu, "relu6": F.relu6, "hardtanh": F.hardtanh, "hardtanh apart": lambda x: F.hardtanh(x, -0.5, 3.0),
    "hardshrink": F.hardshrink, "hardshrink at 0": lambda x: F.hardshrink(x, 0.0), "leaky_relu": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 1.0, 2.0), "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
    "silu": F.silu, "mish": F.mish, "logsigmoid": F.logsigmoid, "softsign": F.softsign, "abs": torch.abs,
    "reciprocal": lambda x: x ** -1, "inverse square": lambda x: x ** -2, "square": lambda x: x ** 2,
    "cube": lambda x: x ** 3, "clamp": lambda x: x.clamp(-1, 3), "clamp_min": lambda x: x.clamp_min(0.5),
    "sign": torch.sign, "exp2": torch.exp2, "sqrt of square": lambda x: x.square().sqrt(),
}

# torch's own kernels answer a NaN in one way in vectors and in another in the elements that fill none.
NAN_IS_TORCHS = {"elu", "elu of half", "celu", "celu of two", "celu turned", "selu", "hardswish"}


def gradients(f, values, dtype, twice):
    """The gradient, and if asked those of it."""
    x = torch.linspace(-7, 7, 64, dtype=dtype)
    x[: len(values)] = torch.tensor(values, dtype=dtype)
    x.requires_grad_()
    w = torch.linspace(0.5, 2, 64, dtype=dtype, requires_grad=True)
    first, = torch.autograd.grad(f(x), x, w, create_graph=True)
    found = [first.detach()]
    if first.requires_grad and twice:
        found += [g for g in torch.autograd.grad(first.sum(), (x, w), allow_unused=True) if g is not None]
    return found


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, dtype):
    f = FUNCTIONS[name]
    values = BENDS if name in NAN_IS_TORCHS else BENDS + SPECIAL
    twice = name != "hardsigmoid"  # whose second derivative torch has not
    want, fast = gradients(f, values, dtype, twice), dycl.accelerate(lambda x: f(x))
    for _ in range(3):
        got = gradients(fast, values, dtype, twice)
        assert len(got) == len(want)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, equal_nan=True, rtol=2e-5, atol=2e-6)
