"""Convolutions that are products of our own in other ways than the usual one: gradients of weights of few pixels,
strides of transposed ones, windows as wide as the image, weights that are packed while they are multiplied, or never.
Values and gradients against torch's, each way forced, with weights that stay and weights that change."""

import os
import random
import re

import pytest
import torch
import torch.nn.functional as F

import dycl
from isa import VECTOR_ISAS, run_with
from suite import FULL, one_thread  # noqa: F401 (a fixture)
from test_conv_gradients import _compare, _gradients

ROUNDS = 40 if FULL else 12


def _few_pixels(rng):
    kernel = rng.choice([1, 2, 3, 3, 4, 5, 7]), rng.choice([1, 2, 3, 3, 5])
    options = {"stride": (rng.choice([1, 2, 2, 3]), rng.choice([1, 2])), "dilation": rng.choice([1, 1, 2]),
               "padding": (rng.randint(0, 3), rng.randint(0, 2))}
    sizes = rng.randint(1, 3), rng.choice([1, 3, 8, 16, 33, 72]), rng.randint(3, 11), rng.randint(3, 11)
    return F.conv2d, (torch.randn(sizes), torch.randn(rng.choice([8, 19, 40, 70]), sizes[1], *kernel)), options


def _strided(rng):
    kernel, stride = (rng.randint(1, 5), rng.randint(1, 5)), (rng.randint(1, 4), rng.randint(1, 4))
    options = {"stride": stride, "padding": (rng.randrange(kernel[0]), rng.randrange(kernel[1])),
               "output_padding": (rng.randrange(stride[0]), rng.randrange(stride[1]))}
    sizes = rng.randint(1, 3), rng.choice([1, 5, 16, 40]), rng.randint(1, 9), rng.randint(1, 9)
    weight = torch.randn(sizes[1], rng.choice([8, 13, 24, 50]), *kernel)
    return F.conv_transpose2d, (torch.randn(sizes), weight), options


def _wide(rng):
    """As over the words of a sentence; now and then a column wider than the window."""
    width = rng.choice([2, 7, 16, 33, 64])
    x = torch.randn(rng.randint(1, 5), rng.choice([1, 1, 1, 3]), rng.randint(6, 30), width + rng.choice([0, 0, 0, 1]))
    options = {"stride": (rng.choice([1, 1, 1, 2]), rng.randint(1, 2)), "padding": (rng.choice([0, 0, 2]), 0)}
    return F.conv2d, (x, torch.randn(rng.choice([8, 20, 32]), x.shape[1], rng.randint(1, 5), width)), options


def _many_weights(rng):
    """More than half of a second cache."""
    stride, kernel = rng.choice([1, 1, 2]), rng.choice([1, 3, 3, 4])
    channels = rng.choice([256, 320]) if kernel > 1 else 700
    sizes = (channels, rng.choice([200, 264])) if rng.random() < 0.5 else (rng.choice([200, 264]), channels)
    x = torch.randn(rng.randint(1, 2), channels, rng.randint(2, 6), rng.randint(2, 6))
    return (F.conv_transpose2d if sizes[0] == channels else F.conv2d,
            (x, torch.randn(*sizes, kernel, kernel) / 8), {"stride": stride, "padding": kernel // 3})


def _layer(function, weight, bias, options):
    """With weights that stay: they are packed once."""
    kind = torch.nn.Conv2d if function is F.conv2d else torch.nn.ConvTranspose2d
    channels = (weight.shape[1], weight.shape[0]) if kind is torch.nn.Conv2d else weight.shape[:2]
    layer = kind(*channels, weight.shape[2:], bias=bias is not None, **options)
    layer.load_state_dict({"weight": weight, **({} if bias is None else {"bias": bias})})
    return torch.nn.Sequential(layer)


DRAWN = {"few": (_few_pixels, "weight's gradient"), "strided": (_strided, "phases' products"),
         "wide": (_wide, "window product"), "many": (_many_weights, "product")}


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("threads", [1, 2])
def test_drawn(kind, threads):
    draw, kernel = DRAWN[kind]
    rng = random.Random(f"{kind} {threads}")
    torch.manual_seed(threads)
    torch.set_num_threads(threads)
    said = []
    for _ in range(ROUNDS if kind != "many" else ROUNDS // 2):
        function, operands, options = draw(rng)
        operands += (torch.randn(8) if operands[1].shape[0] == 8 and function is F.conv2d else None,)
        wanted = [True, True, rng.random() < 0.5]
        try:
            want = _gradients(function, operands, options, wanted, False)
        except RuntimeError:  # windows or results of no size
            continue

        def program(x, w, b, **options):
            return function(x * 1, w, b, **options)

        run = _compare(program, want, operands, options, wanted, times=4)
        said.append(dycl.explain(run))
        layer = dycl.accelerate(_layer(function, *operands[1:], options))
        with torch.no_grad():
            for _ in range(4):
                assert torch.allclose(layer(operands[0]), want[0], rtol=1e-4, atol=2e-4), (kind, options)
    assert len(said) > 3 and any(kernel in text for text in said), said[-1:]


@pytest.mark.parametrize("threads", [1, 2])
def test_drawn_with_a_sum_and_a_clamp(threads):
    """Many weights, which are computed, and few pixels; what else goes to the image is added on the way back."""
    rng = random.Random(f"sum {threads}")
    torch.manual_seed(threads)
    torch.set_num_threads(threads)
    said = []
    for _ in range(2 * ROUNDS):
        function, operands, options = _many_weights(rng)
        result = function(*operands, **options)
        residual = torch.randn_like(result) if rng.random() < 0.5 else None
        operands += (torch.randn(result.shape[1]) if rng.random() < 0.5 else None,)

        def program(x, w, b, function=function, residual=residual, **options):
            x = x * 1
            y = function(x, w * 1, b, **options)
            y = y if residual is None else (y + residual).relu()
            return y + x.sin().mean()

        wanted = [True, True, True]
        want = _gradients(program, operands, options, wanted, False)
        said.append(dycl.explain(_compare(program, want, operands, options, wanted, times=4)))
    if os.environ.get("DYCL_MEASURE") == "1":
        text = "\n".join(said)
        for step in ("window product.* conv2d", "window product.* conv_transpose2d", "phases' products.* conv_trans"):
            assert re.search(step.replace(".*", r" +\[few pixels\].*"), text), (step, text)


@pytest.mark.parametrize("way", range(3))
@pytest.mark.parametrize("isa", VECTOR_ISAS)
def test_each_way(isa, way):
    done = run_with(isa, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "drawn", timeout=500,
                    DYCL_MEASURE=str(way), DYCL_CHOOSE="0", DYCL_PROFILE="0")
    assert done.returncode == 0 and "10 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_number_comes_from_the_zeros_around(value):
    """What is multiplied with zeros around an image must not reach weights that eager's windows do not touch."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, 16, 5, 5), torch.randn(24, 16, 3, 3)
    cotangent = torch.randn(2, 24, 5, 5)
    cotangent[0, 3, 0, 0] = value

    def gradient(function):
        leaf = weight.clone().requires_grad_()
        return torch.autograd.grad(function(x, leaf), leaf, cotangent)[0]

    def program(x, w):
        return F.conv2d(x * 1, w, padding=1)

    want, run = gradient(program), dycl.accelerate(program)
    for _ in range(4):
        found = gradient(run)
        assert torch.equal(found.isnan(), want.isnan()) and torch.equal(found.isinf(), want.isinf())


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels, size", [(256, 4), (16, 13)])
@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d])
def test_an_infinite_weight_meets_no_zeros_around_the_image(one_thread, function, channels, size, stride, stays):
    """Of few pixels the result is looked at, of others the weights."""
    x, weight = torch.rand(2, channels, size, size) + 0.5, torch.randn(channels, channels, 3, 3)
    weight[3, 5, 0, 0] = weight[4, 2, 1, 1] = float("inf")
    layer = _layer(function, weight, None, {"stride": stride, "padding": 1})
    call = dycl.accelerate(layer if stays else lambda x: function(x, weight * 1, padding=1, stride=stride))
    with torch.no_grad():
        right = function(x, weight, padding=1, stride=stride)
        for _ in range(12):  # each way is tried while they are measured
            torch.testing.assert_close(call(x), right, rtol=1e-4, atol=1e-3, equal_nan=True)
