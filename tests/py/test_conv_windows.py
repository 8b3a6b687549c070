"""Convolutions and pools of drawn shapes: windows that see little or nothing of the image, paddings wider than it,
strides longer than it."""

import os
import random
import subprocess
import sys

import dycl
import pytest
import torch
import torch.nn.functional as F


def drawn(seed):
    """(function, image) of a drawn form that torch takes."""
    choose = random.Random(seed)
    kind = choose.choice(("conv", "conv", "conv", "transposed", "max", "avg"))
    size = [choose.choice((1, 1, 2, 3, 5, 9)) for _ in range(2)]
    kernel = [choose.choice((1, 1, 2, 3, 4)) for _ in range(2)]
    stride = [choose.choice((1, 1, 2, 3, 5, 11)) for _ in range(2)]
    dilation = [choose.choice((1, 1, 1, 2, 3)) for _ in range(2)]
    groups = choose.choice((1, 1, 1, 2))
    channels, made = groups * choose.choice((1, 3, 8, 16)), groups * choose.choice((1, 4, 8, 17))
    padding = [choose.choice((0, 1, 2, 3, 7)) for _ in range(2)]
    batch = choose.choice((1, 2, 5))
    x = torch.randn(batch, channels, *size)
    if choose.random() < 0.3:
        x = x.to(memory_format=torch.channels_last)
    bias = torch.randn(made) if choose.random() < 0.5 else None
    if kind == "conv":
        w = torch.randn(made, channels // groups, *kernel)
        return (lambda x: F.conv2d(x, w, bias, stride, padding, dilation, groups).relu()), x
    if kind == "transposed":
        w = torch.randn(channels, made // groups, *kernel)
        return (lambda x: F.conv_transpose2d(x, w, bias, stride, padding, 0, groups, dilation) * 2), x
    padding = [min(p, k // 2) for p, k in zip(padding, kernel)]
    ceil, padded = choose.random() < 0.5, choose.random() < 0.5
    if kind == "max":
        return (lambda x: F.max_pool2d(x, kernel, stride, padding, dilation, ceil) + 1), x
    return (lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil, padded) + 1), x


@pytest.mark.parametrize("seed", range(30))
def test_windows(seed):
    torch.manual_seed(seed)
    with torch.no_grad():
        for i in range(20):
            function, x = drawn(1000 * seed + i)
            try:
                wanted = function(x)
            except RuntimeError as error:
                with pytest.raises(RuntimeError) as raised:
                    dycl.accelerate(function)(x)
                assert str(raised.value) == str(error)
                continue
            fast = dycl.accelerate(function)
            for _ in range(3):
                got = fast(x)
                assert got.stride() == wanted.stride()
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size, kernel, stride, padding",
                         [((5, 1), (3, 1), (1, 5), (1, 2)), ((5, 1), (3, 1), (1, 40), (0, 8)),
                          ((1, 5), (1, 3), (40, 1), (8, 0)), ((2, 2), (1, 1), (7, 7), (9, 9))])
def test_windows_beside_the_image(size, kernel, stride, padding):
    """The only column of windows lies left of the image as a whole: it crashed."""
    conv = torch.nn.Conv2d(8, 16, kernel, stride, padding)
    fast, x = dycl.accelerate(lambda x: conv(x)), torch.randn(2, 8, *size)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), conv(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape, kernel, padding", [((1, 1, 2, 300), (2**24 + 1, 1), (2**23, 0)),
                                                    ((1, 2, 2, 3), (2**31 - 1, 1), (2**30 - 1, 0)),
                                                    ((2, 1, 3, 40), (2**26 + 1, 3), (2**25, 1))])
def test_a_pool_far_higher_than_its_image(shape, kernel, padding):
    """Places in a window that were counted from above the image did not fit: the gradient went anywhere."""
    def gradient(function):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).requires_grad_()
        y = function(x)
        y.backward(torch.arange(1.0, y.numel() + 1).view_as(y))
        return y, x.grad

    def function(x):
        return F.max_pool2d(x, kernel, 1, padding)

    fast = dycl.accelerate(function)
    for _ in range(3):
        for got, wanted in zip(gradient(fast), gradient(function)):
            assert torch.equal(got, wanted)


@pytest.mark.resident
def test_a_stride_far_longer_than_its_image():
    """What lies between its windows is not copied."""
    program = """
import resource, torch, dycl, torch.nn.functional as F
x, w = torch.randn(1, 8, 4, 1), torch.randn(8, 8, 1, 1)
def function(x):
    return F.conv2d(x, w, None, (1, 2**22), (0, 2**22))
fast = dycl.accelerate(function)
wanted, before = function(x), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    torch.testing.assert_close(fast(x), wanted)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "DYCL_CHOOSE": "0"})
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 200_000, "KiB"
