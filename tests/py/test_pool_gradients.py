"""Gradients of max pooling by our own kernel, to the bit: equal elements, NaN, windows of nothing but -inf, windows
that overlap, and what is left to torch's kernel."""

import itertools
import random
import textwrap

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_environment import start

INF = float("inf")


def _gradients(run, x, create_graph=False):
    x = x.clone().requires_grad_()
    result = run(x)
    cotangent = (torch.arange(result.numel()).view(result.shape) * 0.7).sin().requires_grad_(create_graph)
    first, = torch.autograd.grad(result, x, cotangent, create_graph=create_graph)
    if not create_graph:
        return result.detach(), first
    return first.detach(), *torch.autograd.grad((first * x.detach().nan_to_num(0, 1, 1)).sum(), cotangent)


def _compare(function, x, **options):
    run = dycl.accelerate(function)
    for _ in range(3):
        for want, got in zip(_gradients(function, x, **options), _gradients(run, x, **options)):
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    return run


def _image(kind, *sizes):
    x = torch.randint(-2, 3, sizes).float()
    if "nan" in kind:
        x[torch.rand_like(x) < 0.2] = float("nan")
    if "inf" in kind:
        x[torch.rand_like(x) < 0.6] = -INF
        x[:, :1] = -INF
    return x


KINDS = ["ties", "nan", "inf", "nan and inf"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [(2,), (2, 1), (3, 2, 1), (3, 1, 1), (4, 3, 2), ((2, 3), (3, 1), (0, 1)), (1,),
                                    (5, 1, 2), (3, 2, 1, 1, True), (2, 2, 0, 1, True)])
def test_windows(window, kind):
    torch.manual_seed(0)
    for height, width in itertools.product((4, 7), (5, 33)):
        _compare(lambda x: F.max_pool2d(x * 1, *window), _image(kind, 2, 3, height, width))


def test_wide_images():
    """Rows in pieces, and windows wider than a piece."""
    torch.manual_seed(0)
    for window in ((3, 2, 1), (3, 1, 1), ((1, 1500), (1, 2)), ((2, 5), (1, 3))):
        _compare(lambda x: F.max_pool2d(x * 1, *window), _image("ties", 1, 2, 6, 2600))


@pytest.mark.parametrize("kind", KINDS)
def test_random_windows(kind):
    draw = random.Random(kind)
    torch.manual_seed(0)
    for _ in range(20):
        kernel = draw.randint(1, 4), draw.randint(1, 4)
        window = (kernel, (draw.randint(1, 3), draw.randint(1, 3)), tuple(draw.randint(0, k // 2) for k in kernel),
                  draw.choice([1, 1, 2]), draw.random() < 0.5)
        image = _image(kind, draw.randint(1, 2), draw.randint(1, 3), draw.randint(7, 20), draw.randint(7, 40))
        _compare(lambda x: F.max_pool2d(x * 1, *window), image)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [(2,), (3, 2, 1), (3, 1, 1), (3,), (3, 2, 0, 1, True), (5, 1, 2)])
def test_images_in_channels_last(window, kind):
    """Of channels that are whole vectors and others; in the strides of eager's gradient, by our kernel."""
    torch.manual_seed(0)
    for channels in (3, 16, 19):
        image = _image(kind, 2, channels, 7, 8).to(memory_format=torch.channels_last)
        run = dycl.accelerate(lambda x: F.max_pool2d(x, *window))
        for function in (run, run, run):
            x, y = (image.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
            want, result = F.max_pool2d(y, *window), function(x)
            given = torch.arange(want.numel()).view(want.shape) * 0.7
            torch.autograd.backward([want, result], [given.sin(), given.sin()])
            torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=0, equal_nan=True)
            assert x.grad.stride() == y.grad.stride()
        assert "max pooling back" in dycl.explain(run)


def test_tall_images():
    """Rows in several bands."""
    torch.manual_seed(0)
    for window in ((3, 2, 1), (3, 1, 1), (2, 1), ((4, 2), (3, 2), (2, 1))):
        _compare(lambda x: F.max_pool2d(x * 1, *window), _image("nan", 1, 1, 130, 20))


def test_other_layouts_and_second_gradients():
    torch.manual_seed(0)
    x = _image("nan", 2, 3, 8, 9)
    _compare(lambda x: F.max_pool2d(x * 1, 2), x.to(memory_format=torch.channels_last))
    _compare(lambda x: F.max_pool2d((x * 1)[:, :, ::2], 2), x)
    _compare(lambda x: F.max_pool2d(x * 1, 2), x, create_graph=True)
    _compare(lambda x: F.max_pool2d(x[0] * 1, 2), x)


def test_pooling_goes_forward_once():
    said = start(textwrap.dedent("""
        import torch, torch.nn.functional as F, dycl
        x, image = torch.ones((), requires_grad=True), torch.randn(2, 3, 8, 8)
        run = dycl.accelerate(lambda x: F.max_pool2d(image * x, 2).sum())
        run(x).backward()
        run(x)  # what a backward pass logs is shown behind the next call
        """), DYCL_CHOOSE="0", DYCL_LOG="graph").stderr
    assert "max_pool2d_back" in said and "max_pool2d_with_indices" not in said


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_averages_with_and_without_padding(spatial, dtype):
    """Each option by itself: windows that hang over the end, and whether padding counts."""
    pool = getattr(F, f"avg_pool{spatial}d")
    for kernel, stride, padding in [(2, 1, 1), (3, 2, 1), (3, 3, 0), (4, 3, 2), (2, 3, 1)]:
        for ceil, include in itertools.product([False, True], repeat=2):
            def program(x):
                return pool(x * 1.0, kernel, stride, padding, ceil, include) * 2  # noqa: B023

            seen, run = [], dycl.accelerate(program)
            for function in (program, run, run, run):  # torch shows first what its result looks like
                x = torch.linspace(-1, 1, 2 * 3 * 7 ** spatial, dtype=dtype).view(2, 3, *[7] * spatial).requires_grad_()
                y = function(x)
                y.backward(torch.linspace(0, 3, y.numel(), dtype=dtype).view(y.shape))
                seen.append([y.detach(), x.grad])
            for got in seen[1:]:
                torch.testing.assert_close(got, seen[0])


def _compare_means(function, x):
    """Values, gradients and their strides, by our kernel."""
    run, seen = dycl.accelerate(function), []
    for called in (function, run, run, run):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = called(leaf)
        y.backward((torch.arange(y.numel()).view(y.shape) * 0.7).sin())
        seen.append((y.detach(), leaf.grad))
    for got in seen[1:]:
        torch.testing.assert_close(got, seen[0], equal_nan=True)
        assert [t.stride() for t in got] == [t.stride() for t in seen[0]]
    assert "mean pooling back" in dycl.explain(run)


@pytest.mark.parametrize("kind", ["ties", "nan", "inf"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_random_means(channels_last, kind):
    draw = random.Random(f"{kind} {channels_last}")
    torch.manual_seed(0)
    for _ in range(12):
        kernel = draw.randint(1, 4), draw.randint(1, 4)
        window = (kernel, (draw.randint(1, 3), draw.randint(1, 3)), tuple(draw.randint(0, k // 2) for k in kernel),
                  draw.random() < 0.5, draw.random() < 0.5)
        sizes = draw.randint(2, 9), draw.randint(2, 9)
        image = _image(kind, 2, draw.choice([3, 16, 19, 70]), draw.randint(7, 20), draw.randint(7, 40))
        if channels_last:
            image = image.to(memory_format=torch.channels_last)
        _compare_means(lambda x: F.avg_pool2d(x, *window), image)
        _compare_means(lambda x: F.adaptive_avg_pool2d(x, sizes), image)


def test_means_of_wide_images():
    """Rows in pieces, windows wider than a piece, more windows than fit."""
    torch.manual_seed(0)
    wide = torch.randn(1, 2, 3, 2600)
    for window in ((3, 2, 1), ((1, 1500), (1, 2)), ((2, 100), (1, 1)), ((3, 4), (2, 5))):
        _compare_means(lambda x: F.avg_pool2d(x, *window), wide)
    for sizes in ((2, 7), (1, 2), (3, 1), (2, 3000)):
        _compare_means(lambda x: F.adaptive_avg_pool2d(x, sizes), wide)
        _compare_means(lambda x: F.adaptive_avg_pool2d(x, sizes), wide[..., :1].contiguous())


def test_second_gradients_of_means():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 9)
    for function in (lambda x: F.avg_pool2d(x * 1, 3, 2, 1), lambda x: F.adaptive_avg_pool2d(x * 1, 3)):
        run = dycl.accelerate(function)
        for _ in range(3):
            for want, got in zip(_gradients(function, x, create_graph=True), _gradients(run, x, create_graph=True)):
                torch.testing.assert_close(got, want)
