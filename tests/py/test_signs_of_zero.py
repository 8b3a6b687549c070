"""The sign of the zeros that relu leaves behind a convolution, whichever kernel computes it: 1 / y shows it."""

import random

import dycl
import pytest
import torch
import torch.nn.functional as F
from torch import nn


def alike(module, x):
    fast = dycl.accelerate(lambda x: (1 / module(x), torch.atan2(module(x), -torch.ones(()))))
    with torch.no_grad():
        want = module(x)
        for _ in range(3):
            inverse, angle = fast(x)
            assert not (inverse == -torch.inf).any()
            assert not (angle < 0).any()
        torch.testing.assert_close(fast(x)[1], torch.atan2(want, -torch.ones(())), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes, options, image", [
    ((16, 16, 3), dict(padding=1, groups=4), (2, 16, 9, 9)),
    ((128, 128, 3), dict(padding=1, groups=32), (1, 128, 14, 14)),
    ((3, 16, (5, 4)), dict(stride=(1, 4), padding=(1, 3), dilation=(1, 3)), (1, 3, 7, 7)),
    ((8, 8, 1), {}, (1, 8, 5, 5)),
    ((6, 6, 3), dict(groups=6), (1, 6, 9, 9))], ids=str)
@pytest.mark.parametrize("normalised", (False, True))
@pytest.mark.parametrize("memory_format", (torch.contiguous_format, torch.channels_last), ids=str)
def test_of_a_convolution(sizes, options, image, normalised, memory_format):
    torch.manual_seed(0)
    layers = [nn.Conv2d(*sizes, **options), *[nn.BatchNorm2d(sizes[1])] * normalised, nn.ReLU()]
    alike(nn.Sequential(*layers).eval(), torch.randn(image).contiguous(memory_format=memory_format))


def test_of_random_convolutions():
    rng = random.Random(0)
    torch.manual_seed(0)
    for _ in range(30):
        groups, each = rng.choice([1, 1, 2, 4]), rng.choice([1, 2, 4, 8])
        conv = nn.Conv2d(groups * each, groups * rng.choice([1, 3, 4]), rng.choice([1, 2, 3, 5]), groups=groups,
                         stride=rng.choice([1, 2]), padding=rng.choice([0, 1, 2]), dilation=rng.choice([1, 2]),
                         bias=rng.random() < 0.5)
        x = torch.randn(rng.choice([1, 2]), groups * each, rng.randrange(9, 15), rng.randrange(9, 15))
        alike(lambda x: F.relu(conv(x)), x)
