"""Views between a convolution and what is elementwise behind it, parts of a parameter in loops of changing length, and
guards on parts of a weight: the layouts and addresses that a plan was made with are those that it meets."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from test_api import python


def agree(f, *args, calls=6):
    fast = dycl.accelerate(f)
    with torch.no_grad():
        want = f(*args)
        for _ in range(calls):
            torch.testing.assert_close(fast(*args), want, rtol=1e-4, atol=1e-5)


VIEWS = {
    "view": lambda y: y.view(1, 4, 8, 8), "groups": lambda y: y.view(2, 8, 4, 4),
    "rows": lambda y: y.view(1, 1, 16, -1),
    "columns": lambda y: y.view(1, -1, 8, 2), "flat": lambda y: y.flatten(2).unsqueeze(1),
    "of five": lambda y: y.view(1, 4, 4, 4, 4), "of three": lambda y: y.view(4, 8, 8),
    "same": lambda y: y.view(1, 16, 4, 4),
    "turned": lambda y: y.transpose(1, 2), "last": lambda y: y.permute(0, 2, 3, 1),
    "merged": lambda y: y.reshape(16, 16),
}
CONVOLUTIONS = {
    "plain": lambda: nn.Conv2d(8, 16, 3), "dilated": lambda: nn.Conv2d(8, 16, 2, dilation=2),
    "grouped": lambda: nn.Conv2d(8, 16, 3, groups=4), "depthwise": lambda: nn.Conv2d(8, 16, 3, groups=8),
    "transposed": lambda: nn.ConvTranspose2d(8, 16, 3, padding=2), "one": lambda: nn.Conv2d(8, 16, 1, padding=0),
}
BEHIND = {
    "number": lambda y: y * 2, "activation": lambda y: y.sigmoid() * y, "sum": lambda y: (y + 1).sum(-1),
    "both": lambda y: (y * 2, y.tanh()), "softmax": lambda y: y.softmax(-1),
}


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
@pytest.mark.parametrize("view", VIEWS)
def test_views_between(view, convolution, threads):
    torch.manual_seed(3)
    before = torch.get_num_threads()
    conv = CONVOLUTIONS[convolution]()
    x = torch.randn(1, 8, 4, 4) if convolution == "one" else torch.randn(1, 8, 6, 6)
    try:
        torch.set_num_threads(threads)
        for behind in BEHIND.values():
            agree(lambda x: behind(VIEWS[view](conv(x).sigmoid())), x)
            agree(lambda x: behind(VIEWS[view](F.gelu(conv(x)) + 1)), x)
    finally:
        torch.set_num_threads(before)


def test_statistics_that_are_a_view_of_an_image():
    """Parameters that a network makes (hyper networks, adaptive norms)."""
    conv, hyper, rows = nn.Conv2d(8, 16, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 16, 1)
    x, s, t = torch.randn(2, 8, 6, 6), torch.randn(1, 4, 4, 4), torch.randn(1, 4, 4, 4)
    ones = torch.ones(16)
    agree(lambda x, s: F.batch_norm(conv(x).sigmoid(), None, None, hyper(s).view(16), training=True), x, s)
    agree(lambda x, s: F.batch_norm(conv(x).sigmoid(), None, None, ones, hyper(s).view(16), training=True), x, s)
    agree(lambda x, t: F.batch_norm(conv(x).sigmoid(), rows(t).view(16, 16)[:, 3], ones), x, t)
    agree(lambda x, t: F.batch_norm(conv(x).sigmoid(), ones, rows(t).view(16, 16)[:, 3].square() + 1), x, t)
    agree(lambda x, t: F.batch_norm(conv(x), ones, ones, rows(t).view(16, 16)[:, 3], rows(t).view(16, 16)[:, 5]), x, t)


@pytest.mark.parametrize("bad", (float("nan"), float("inf")))
def test_slices_of_one_weight_keep_their_nans(bad):
    rng = random.Random(3)
    torch.manual_seed(1)
    w = torch.randn(64, 16, 1, 3, 3) * 0.2
    w[20, 3, 0, 1, 1] = bad
    weights, x = nn.Parameter(w.clone()), torch.randn(1, 16, 8, 8)  # nobody else has its memory

    def program(x, n):
        for i in range(n):
            x = F.relu(F.conv2d(x, weights[i], groups=16, padding=1))
        return x

    fast = dycl.accelerate(program)
    with torch.no_grad():
        for _ in range(40):
            n = rng.randint(33, 47)
            want = program(x, n)
            assert torch.equal(fast(x, n).isnan(), want.isnan())


def test_parts_of_a_parameter_in_loops():
    """Nothing is read behind it, where nothing may be."""
    assert python("""
        import random, torch, torch.nn.functional as F, dycl

        rng = random.Random(1)
        behind = torch.empty(64 << 20)
        weights, x = torch.nn.Parameter(torch.empty(3072, 1024).normal_()), torch.randn(12, 1024)
        del behind

        def program(x, n):
            y = F.linear(x, weights)[:, :1024]
            for _ in range(n):
                y = torch.tanh(F.linear(y, weights[2048:]) * 0.01)
            return y

        fast = dycl.accelerate(program)
        with torch.no_grad():
            for _ in range(40):
                n = rng.randint(4, 19)
                torch.testing.assert_close(fast(x, n), program(x, n), rtol=1e-4, atol=1e-5)
        print("done")
        """) == "done"
