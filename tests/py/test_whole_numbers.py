"""Where eager's result is a whole number, so is ours, and the same: programs take `int(x)`, floors and `==` of it.

A result within an ulp may lie below the whole number (log2(8) at 2.9999998), which no tolerance shows. Results above
2^20 are left out: an ulp of them is a matter of rounding."""

import math

import pytest
import torch
import torch.nn.functional as F

import dycl

AROUND, FROM_ONE = torch.arange(-300, 301).double(), torch.arange(1, 2001).double()
SQUARES, EXPONENTS = FROM_ONE[:1000] ** 2, torch.arange(-60, 20).double()


def rows(*factors):
    """Multiples of x, beside each other."""
    return lambda t: torch.stack([t * factor for factor in factors], -1)


FUNCTIONS = {
    "log2": (torch.log2, 2.0**EXPONENTS), "log2 of each": (torch.log2, FROM_ONE),
    "log10": (torch.log10, 10.0 ** torch.arange(-30, 30).double()), "log10 of each": (torch.log10, FROM_ONE),
    "log": (torch.log, torch.exp(torch.arange(-30, 30).double())), "exp2": (torch.exp2, EXPONENTS),
    "2 ** x": (lambda t: 2**t, EXPONENTS), "3 ** x": (lambda t: 3.0**t, torch.arange(-12, 12).double()),
    "10 ** x": (lambda t: 10**t, torch.arange(-6, 6).double()), "x ** 2": (lambda t: t**2, AROUND),
    "x ** 3": (lambda t: t**3, AROUND[200:400]), "x ** 0.5": (lambda t: t**0.5, SQUARES),
    "x ** 1.5": (lambda t: t**1.5, SQUARES[:90]), "x ** -0.5": (lambda t: t**-0.5, SQUARES),
    "x ** y": (lambda t: torch.pow(t, torch.full_like(t, 3)), AROUND[200:400]), "sqrt": (torch.sqrt, SQUARES),
    "rsqrt": (torch.rsqrt, 1 / SQUARES), "1 / x": (torch.reciprocal, 2.0**EXPONENTS),
    "x / 7": (lambda t: t / 7, AROUND), "x / 0.1": (lambda t: t / 0.1, AROUND),
    "x * 0.1": (lambda t: t * 0.1, AROUND), "x // 0.1": (lambda t: t // 0.1, AROUND),
    "round": (lambda t: torch.round(t / 0.05) + 3, AROUND), "hypot": (lambda t: torch.hypot(t * 3, t * 4), AROUND),
    "norm": (lambda t: rows(3, 4, 12)(t).norm(dim=-1), AROUND),
    "lerp": (lambda t: torch.lerp(t, t + 10, 0.5), AROUND),
    "cos of turns": (lambda t: torch.cos(t * math.pi), AROUND), "tanh": (torch.tanh, AROUND[290:311]),
    "exp of 0": (torch.exp, AROUND[299:302]), "atan2": (lambda t: torch.atan2(t * 0, t), AROUND),
    "rad2deg": (lambda t: torch.rad2deg(torch.deg2rad(t)), AROUND[::5]),
    "logit": (lambda t: torch.logit(t.abs() / 600), AROUND),
    "normalize": (lambda t: F.normalize(rows(0, 4)(t), dim=-1), AROUND),
    "layer_norm": (lambda t: F.layer_norm(torch.stack([t, t + 2], -1), (2,), eps=0.0), AROUND),
    "softmax": (lambda t: rows(1, 1, 1, 1)(t).softmax(-1) * 4, AROUND),
    "mean": (lambda t: t[:300].view(30, 10).mean(-1), AROUND),
    "mean of three": (lambda t: t[:300].view(100, 3).mean(-1), AROUND), "sum": (lambda t: t.sum(), FROM_ONE[:1000]),
    "var": (lambda t: torch.stack([t - 2, t, t + 2], -1).var(-1), AROUND),
    "std": (lambda t: torch.stack([t - 2, t, t + 2], -1).std(-1), AROUND), "cumsum": (lambda t: t.cumsum(-1), AROUND),
    "product": (lambda t: t[:300].view(30, 10) @ t[:300].view(10, 30), AROUND),
    "conv1d": (lambda t: F.conv1d(t.view(1, 1, -1), t[:5].view(1, 1, -1)), AROUND),
    "mse_loss": (lambda t: F.mse_loss(t, t + 2), AROUND),
    "cdist": (lambda t: torch.cdist(rows(0, 1)(t)[:20], rows(0, 1)(t)[:20] + 3), AROUND),
    "interpolate": (lambda t: F.interpolate(t.view(1, 1, -1), scale_factor=2, mode="linear"), AROUND),
    "avg_pool1d": (lambda t: F.avg_pool1d(t.view(1, 1, -1), 3), AROUND),
    "batch_norm": (lambda t: F.batch_norm(t.view(-1, 1), t[:1] * 0 + 1, t[:1] * 0 + 4, eps=0.0), AROUND),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_whole_numbers_are_the_same(name, dtype):
    function, numbers = FUNCTIONS[name]
    x = numbers.to(dtype)
    want, accelerated = function(x), dycl.accelerate(lambda t: function(t))
    for _ in range(3):  # as first planned, and as tuned
        got = accelerated(x)
    small = want.abs() < 2**20
    whole = small & (want == want.round())
    assert torch.equal(got[whole], want[whole])
    assert torch.equal(got[small].floor(), want[small].floor())
