"""Infinities and NaNs come through fused convolutions, rectifiers and pooling as in eager torch.

oneDNN's relu and max pooling turn a NaN into a number; plans that use them are guarded (csrc/exec/guard.h)."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl


def model(activation):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), activation, nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 1)
    ).eval()


def inputs():
    plain = torch.randn(2, 3, 16, 16)
    nan, inf, minus = plain.clone(), plain.clone(), plain.clone()
    nan[0, 0, 3, 3] = float("nan")
    inf[1, 2, 1, 1] = float("inf")
    minus[0, 1, 5, 5] = -float("inf")
    return {"finite": plain, "nan": nan, "inf": inf, "minus inf": minus, "overflow": plain * 1e38}


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.Hardswish], ids=lambda a: a.__name__)
def test_special_inputs(activation):
    m = model(activation())
    samples = inputs()
    with torch.no_grad():
        expected = {name: m(x) for name, x in samples.items()}
        assert any(e.isnan().any() for e in expected.values())
        dycl.accelerate(m)
        for _ in range(4):  # the cold plan, the tuned one, and both in turn
            for name, x in samples.items():
                torch.testing.assert_close(m(x), expected[name], equal_nan=True, msg=name)
        assert dycl.stats(m)["torch"] == 0


def test_weights_that_become_nan():
    m = model(nn.ReLU())
    x = inputs()["finite"]
    with torch.no_grad():
        dycl.accelerate(m)
        for _ in range(3):
            m(x)
        m[0].weight[3, 1, 1, 1] = float("nan")
        with dycl.disable():
            expected = m(x)
        assert expected.isnan().any()
        for _ in range(3):
            torch.testing.assert_close(m(x), expected, equal_nan=True)


def test_weights_are_looked_at_for_each_shape_and_version():
    """What one plan found out about a weight serves the others, until the weight is written."""
    m = model(nn.ReLU())
    with torch.no_grad():
        dycl.accelerate(m)
        poison = [float("inf"), 1.0, float("nan"), 2.0]
        for size, value in zip((16, 18, 20, 22), poison):
            m[3].weight[2, 0, 0, 0] = value
            x = torch.randn(1, 3, size, size)
            with dycl.disable():
                expected = m(x)
            for _ in range(3):
                torch.testing.assert_close(m(x), expected, equal_nan=True, msg=f"size {size}, weight {value}")


W, GROUPED = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(1)), torch.randn(8, 2, 3, 3, generator=torch.Generator().manual_seed(2))
HIDING = {
    "relu of conv": lambda x: F.relu(F.conv2d(x, W)),
    "relu of padded conv": lambda x: F.relu6(F.conv2d(x, W, padding=1)),
    "relu of grouped conv": lambda x: F.relu(F.conv2d(x, GROUPED, groups=2)),
    "relu of dilated conv": lambda x: F.hardswish(F.conv2d(x, W, dilation=2)),
    "relu of batch norm": lambda x: F.relu(F.batch_norm(F.conv2d(x, W), torch.zeros(8), torch.linspace(-0.2, 1, 8))),
    "max pool": lambda x: F.max_pool2d(x, 2),
    "max pool of conv": lambda x: F.max_pool2d(F.conv2d(x, W), 3, 1),
    "pool of batch norm": lambda x: F.max_pool2d(F.batch_norm(x, torch.zeros(4), torch.tensor([1.0, -1, 0.5, 2])), 2),
    "adaptive max pool": lambda x: F.adaptive_max_pool2d(x, 3),
}
MAKING = {
    "log": lambda x: x.log(),
    "square root": lambda x: x.sqrt(),
    "division": lambda x: x / x.trunc(),
    "reciprocal": lambda x: x.trunc().reciprocal(),
    "power": lambda x: x**0.5,
    "exp": lambda x: (x * 200).exp(),
    "remainder": lambda x: x % x.trunc(),
    "a number": lambda x: x * float("nan"),
    "an infinite number": lambda x: x.masked_fill(x > 1, -float("inf")),
    "double": lambda x: x.double().log().float(),
    "overflow of double": lambda x: (x.double() * 1e200).float(),
    "variance of one": lambda x: x - x[..., :1].var(-1, keepdim=True),
    "product": lambda x: x + (x * 20).prod(-1, keepdim=True).prod(-2, keepdim=True),
    "norm": lambda x: F.layer_norm(x.trunc(), x.shape[-1:], eps=0.0),
}
SEEING = {
    "values": lambda y: y,
    "mask": lambda y: y > 0.31371,  # no number is near
    "count": lambda y: y.isnan().sum(),
    "number": lambda y: y.nan_to_num(7.0, 8.0, 9.0).sum(1),
}


@pytest.mark.parametrize("making", MAKING)
@pytest.mark.parametrize("hiding", HIDING)
def test_what_is_made_on_the_way(hiding, making):
    """Every input is finite, and what follows sees only part of the result."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 10, 9)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of one element
        for name, seeing in SEEING.items():
            program = lambda x: seeing(HIDING[hiding](MAKING[making](x)))  # noqa: E731, B023
            expected, accelerated = program(x), dycl.accelerate(program)
            for _ in range(4):
                torch.testing.assert_close(accelerated(x), expected, equal_nan=True, rtol=1e-5, atol=1e-4, msg=lambda m: f"{name}: {m}")  # noqa: B023
