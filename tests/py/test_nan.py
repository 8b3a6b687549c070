"""Infinities and NaNs come through fused convolutions, rectifiers and pooling as in eager torch.

oneDNN's relu and max pooling turn a NaN into a number; plans that use them are guarded (csrc/exec/builder/guard.h)."""

import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from isa import ISAS, run_with
from torch import nn

import dycl


def model(activation):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), activation, nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16),
        nn.ReLU(), nn.Conv2d(16, 4, 1)
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
                # torch's bounds for numbers about 1, for the sums that cancel; as much for those of 1e38
                torch.testing.assert_close(m(x), expected[name], equal_nan=True, rtol=1.3e-6,
                                           atol=1e33 if name == "overflow" else 1e-5, msg=name)
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


WRITTEN = """
import torch, dycl
from torch import nn

torch.set_num_threads(2)
torch.manual_seed(0)
m = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, bias=False), nn.BatchNorm2d(32),
nn.Hardswish(),
                  nn.Conv2d(32, 16, 1), nn.ReLU(), nn.Flatten(2), nn.AdaptiveAvgPool1d(6), nn.Linear(6, 5),
                  nn.ReLU()).eval()
written = [p for p in m.parameters()]
accelerated = dycl.accelerate(lambda x: m(x))
sizes = [torch.randn(1, 16, n, n) for n in (14, 15)]
with torch.no_grad():
    for _ in range(3):
        for x in sizes:
            accelerated(x)
    for value in (1.0, float("inf"), 0.5, float("nan"), 2.0, 1e30, 0.25, -float("inf"), 0.125):
        for p in written:
            at = p.view(-1)[1].clone()
            p.view(-1)[1] = value
            for x in sizes + sizes:
                expected = m(x)
                torch.testing.assert_close(accelerated(x), expected, equal_nan=True, rtol=1e-4, atol=1e-4, msg=lambda
                m: f"{value}: {m}")
            p.view(-1)[1] = at
"""


@pytest.mark.parametrize("way", range(3))
@pytest.mark.parametrize("isa", ISAS)
def test_constants_that_are_written_between_calls(isa, way):
    """What was found out about a constant holds for one version of it, in each variant of its reader."""
    done = run_with(isa, "-c", WRITTEN, timeout=300, DYCL_MEASURE=str(way), DYCL_CHOOSE="0", DYCL_PROFILE="0")
    assert done.returncode == 0, done.stderr


W, GROUPED = torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(1)), torch.randn(8, 2, 3, 3,
        generator=torch.Generator().manual_seed(2))
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
                torch.testing.assert_close(accelerated(x), expected, equal_nan=True, rtol=1e-5, atol=1e-4,
                                           msg=lambda m: f"{name}: {m}")  # noqa: B023
# ---- What is not finite only inside: no feed and no output shows it


def without_nan(x):
    return torch.where(x.isnan(), 77.0, x.clamp(-50, 50))


MAKERS = {
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "division": lambda x: x / (x.floor() + 1),
    "reciprocal": lambda x: 1 / x,
    "power": lambda x: x**-1.5,
    "exp": lambda x: (x * 100).exp(),
    "remainder": lambda x: x % (x.floor() + 1),
    "a number": lambda x: x.masked_fill(x < -1.2, float("-inf")),
    "doubles": lambda x: (x.double() * 1e300 * 1e300).float(),
}
WEIGHTS = {name: nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(1)), requires_grad=False)
           for name, shape in
           {"plain": (16, 16, 3, 3), "grouped": (16, 4, 3, 3), "few": (4, 16, 3, 3)}.items()}  # fmt: skip
VARIANCE = torch.ones(16)
VARIANCE[3] = -0.5
HIDERS = {
    "max pooling": lambda x: F.max_pool2d(x, 2),
    "max pooling of a line": lambda x: F.max_pool1d(x.flatten(1, 2), 3),
    "max pooling, channels last": lambda x: F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 3, 2, 1),
    "max pooling of a convolution": lambda x: F.max_pool2d(F.conv2d(x, WEIGHTS["plain"]), 2),
    "relu": lambda x: F.conv2d(x, WEIGHTS["plain"], padding=1).relu(),  # Winograd where that is faster
    "relu, groups": lambda x: F.conv2d(x, WEIGHTS["grouped"], groups=4).relu(),
    "relu6, few channels": lambda x: F.relu6(F.conv2d(x, WEIGHTS["few"])),
    "hardswish, groups": lambda x: F.hardswish(F.conv2d(x, WEIGHTS["grouped"], groups=4)),
    "residual and relu": lambda x: (F.conv2d(x.abs().clamp(0, 1), WEIGHTS["grouped"], groups=4, padding=1) + x).relu(),
    "part of a wild value": lambda x: F.conv2d(x[:, :, :6], WEIGHTS["grouped"], groups=4).relu()
    + F.conv2d(x[:, :, 4:], WEIGHTS["grouped"], groups=4).relu()[:, :, :4],
    "one after the other": lambda x: F.conv2d(F.conv2d(x, WEIGHTS["grouped"], groups=4).relu() + 1, WEIGHTS["grouped"],
                                              groups=4).relu(),
}


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4 * max(1.0, want.abs().nan_to_num(0, 0, 0).max().item()),
                               equal_nan=True)


@pytest.mark.parametrize("hider", HIDERS)
@pytest.mark.parametrize("maker", MAKERS)
def test_made_inside(maker, hider):
    """A NaN or infinity that arises between finite feeds and finite outputs, in front of a primitive that could hide
    it."""
    program = lambda x: without_nan(HIDERS[hider](MAKERS[maker](x)))  # noqa: E731
    good = torch.rand(2, 16, 10, 10) + 0.5
    some = good.clone()
    some[0, 3, 2, 2], some[1, 5, 7, 6], some[0, 15, 9, 9] = -1.5, 0.0, -1.25
    with torch.no_grad():
        accelerated = dycl.accelerate(program)
        for _ in range(4):
            for x in (good, some):
                close(accelerated(x), program(x))
        assert dycl.stats(accelerated)["torch"] == 0


def test_a_negative_variance():
    """Its root is NaN, in the scale that a convolution takes over."""
    x = torch.randn(2, 16, 10, 10)
    program = lambda x: without_nan(F.batch_norm(F.conv2d(x, WEIGHTS["grouped"], groups=4), torch.zeros(16),
                                                 VARIANCE).relu())  # noqa: E731
    with torch.no_grad():
        accelerated = dycl.accelerate(program)
        for _ in range(6):
            close(accelerated(x), program(x))


def test_what_does_not_reach_such_a_primitive_is_not_looked_at():
    """An infinite mask beside a convolution does not take away its fused activation."""
    mask = torch.zeros(4, 4)
    mask[0, 1] = float("-inf")
    program = lambda x, mask: (F.conv2d(x, WEIGHTS["grouped"], groups=4).relu(),
                               (mask + x[0, 0, :4, :4]).softmax(-1))  # noqa: E731
    x = torch.randn(2, 16, 10, 10)
    with torch.no_grad():
        accelerated = dycl.accelerate(program)
        for _ in range(4):
            for got, want in zip(accelerated(x, mask), program(x, mask)):
                close(got, want)
    assert "conv2d relu" in dycl.explain(accelerated)


def test_the_first_of_zeros_is_the_largest():
    x = torch.tensor([0.0, -0.0, -1.0])[torch.randint(0, 3, (2, 5, 9, 40))]
    for window in ((2, 2, 0), (3, 1, 1), (3, 2, 1), (2, 3, 1)):
        for y in (x, x.contiguous(memory_format=torch.channels_last)):
            accelerated = dycl.accelerate(lambda x: F.max_pool2d(x, *window))
            with torch.no_grad():
                for _ in range(2):
                    assert torch.equal(torch.signbit(accelerated(y)), torch.signbit(F.max_pool2d(y, *window)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape, dims", [((40000, 16), 0), ((9, 5000, 40), 1), ((16, 40000), 1), ((700, 900), (0, 1)),
                                         ((3, 20000, 11), (0, 1)), ((50000, 9), 0)])
def test_nan_in_any_piece_of_a_large_reduction(shape, dims, dtype, threads):
    """Large reductions are made in pieces that are put together; each may have the NaN, or all of an infinity."""
    exact = [lambda x: x.amax(dims), lambda x: x.amin(dims), lambda x: (x > 0).any(0), lambda x: x.isnan().all(0)]
    sums = [lambda x: x.sum(dims), lambda x: x.mean(dims), lambda x: x.abs().sum(dims)]
    # f32: 2^-24 of the sum of magnitudes, 40,000, is the rounding of one addition
    rounding = {"rtol": 1e-5, "atol": 2.5e-3} if dtype == torch.float32 else {}
    before, chance = torch.get_num_threads(), random.Random(f"{shape}{dtype}")
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            for reduce in exact + sums:
                limits = rounding if reduce in sums else {"rtol": 0, "atol": 0}
                accelerated = dycl.accelerate(lambda x: reduce(x * 1.0))  # noqa: B023
                for what in (float("nan"), float("inf"), -float("inf")):
                    x = torch.randn(shape, dtype=dtype)
                    for _ in range(3):
                        x[tuple(chance.randrange(n) for n in shape)] = what
                        want, got = reduce(x), accelerated(x)
                        torch.testing.assert_close(got, want, equal_nan=True, **limits)
    finally:
        torch.set_num_threads(before)
