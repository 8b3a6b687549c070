"""What follows a convolution in another dtype: masks, indices, doubles. Convolutions choose the order of memory of what
follows them, and that order has to be carried over with the element size of the follower, not of the convolution (a
mask written as float32 ran over its end)."""

import os

import pytest
import torch
import torch.nn.functional as F
from isa import ISAS, run_with
from suite import compare, run
from tolerance import bounds

import dycl

torch.manual_seed(3)
W = {name: torch.randn(shape).mul(4).round() / 4 for name, shape in {"plain": (8, 4, 3, 3), "even": (8, 4, 2, 2),
                                                                     "grouped": (8, 2, 3, 3), "turned": (4, 8, 3, 3),
                                                                     "line": (8, 4, 3)}.items()}

PRODUCERS = {
    "conv2d": (lambda x: F.conv2d(x, W["plain"]), (2, 4, 9, 7)),
    "padded": (lambda x: F.conv2d(x, W["plain"], padding=1), (1, 4, 12, 12)),
    "strided": (lambda x: F.conv2d(x, W["even"], stride=2), (1, 4, 33, 16)),
    "dilated": (lambda x: F.conv2d(x, W["plain"], dilation=2), (1, 4, 12, 9)),
    "grouped": (lambda x: F.conv2d(x, W["grouped"], groups=2), (2, 4, 9, 7)),
    "transposed": (lambda x: F.conv_transpose2d(x, W["turned"], stride=2), (2, 4, 5, 6)),
    "conv1d": (lambda x: F.conv1d(x, W["line"]), (2, 4, 21)),
    "pooled": (lambda x: F.max_pool2d(F.conv2d(x, W["plain"]), 2), (2, 4, 9, 7)),
    # means beside every sum of quarters: a normalised zero has either sign
    "normed": (lambda x: F.batch_norm(F.conv2d(x, W["plain"]), W["turned"][0, :, 0, 0] + 1 / 32,
                                      W["turned"][0, :, 0, 0].abs() + 1), (2, 4, 9, 7)),
    "joined": (lambda x: torch.cat([F.conv2d(x, W["plain"]), F.conv2d(x, W["plain"]).relu()], 1), (2, 4, 9, 7)),
}
FOLLOWERS = {
    "mask": lambda y: y > 0,
    "relu mask": lambda y: y.relu() > 0,
    "masked": lambda y: (y > 0) * y,
    "where": lambda y: torch.where(y > 0.5, y, y * 0.1),
    "mask as long": lambda y: (y > 0).long(),
    "isnan": lambda y: y.isnan().any(),
    "self equal": lambda y: y == y,
    "double": lambda y: y.double(),
    "long": lambda y: (y * 3).long(),
    "int": lambda y: (y * 3).int(),
    "byte": lambda y: y.abs().to(torch.uint8),
    "short": lambda y: y.to(torch.int16) + 1,
    "double mean": lambda y: y.double().mean((-1, -2) if y.dim() > 2 else -1),
    "double and float": lambda y: (y.double() * 2 + y, y - 1),
    "mask of channels": lambda y: (y > y.mean(1, keepdim=True)).sum(1),
    "argmax": lambda y: y.argmax(1) == 1,
    "joined masks": lambda y: torch.cat([y > 0, y < -1], 1),
    "mask turned": lambda y: (y > 0).transpose(0, 1).contiguous(),
    "double pooled": lambda y: F.avg_pool1d(y.flatten(2).double(), 2),
    "conv again": lambda y: F.conv2d((y > 0).float()[..., :4, :4], W["plain"].repeat(1, 2, 1, 1)) if y.dim() == 4
    and y.shape[1] == 8 else y > 1,
}


def tolerance(dtype):
    # a double here holds a float32 result
    return bounds("nn.functional.conv2d", torch.float32 if dtype.is_floating_point else dtype)


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_conversion(producer, follower):
    conv, shape = PRODUCERS[producer]
    x = torch.randn(shape)
    # the sums of a window may be rounded otherwise; a number beside the edge of a mask is no reason to fail
    x = (x * 4).round() / 4
    program = lambda x: FOLLOWERS[follower](conv(x))  # noqa: E731
    accelerated = dycl.accelerate(program)
    for _ in range(4):
        compare(tolerance, run(program, (x,)), run(accelerated, (x,)))
    assert dycl.stats(accelerated)["replays"] == 0, "a plan that does not fit was refused"


@pytest.mark.parametrize("isa", ISAS)
def test_with_the_kernels_of(isa):
    from dycl import _core

    if isa == _core.info()["isa"]:
        pytest.skip("the kernels that the other tests use")
    done = run_with(isa, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", os.path.abspath(__file__), "-k",
                    "test_conversion")
    assert done.returncode == 0, done.stdout[-6000:]
