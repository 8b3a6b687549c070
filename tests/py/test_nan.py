"""Infinities and NaNs come through fused convolutions, rectifiers and pooling as in eager torch.

oneDNN's relu and max pooling turn a NaN into a number; plans that use them are guarded (csrc/exec/guard.h)."""

import pytest
import torch
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
