"""Losses of elements and their gradients, by a kernel of our own (exec/host/loss.c): eager's numbers."""

import math
import random
import re

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import threads  # noqa: F401 (a fixture)

CLOSE = {torch.float32: dict(rtol=3e-6, atol=2e-7), torch.float64: dict(rtol=1e-13, atol=1e-14)}
REDUCTIONS = "none", "mean", "sum"


def laid(rnd, x):
    """The same elements: contiguous, with gaps, turned, in channels last."""
    how = rnd.randrange(4)
    if how == 0 and x.dim():
        wide = torch.zeros([2 * n for n in x.shape], dtype=x.dtype)
        return wide[tuple(slice(None, None, 2) for _ in x.shape)].copy_(x)
    if how == 1 and x.dim() > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == 2 and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.clone()


def drawn(rnd, shape, dtype, low=-3.0, high=3.0):
    if rnd.randrange(6) == 0 and shape:
        dim = rnd.randrange(len(shape))
        one = torch.empty([1 if i == dim else n for i, n in enumerate(shape)], dtype=dtype)
        return one.uniform_(low, high).expand(shape)
    return laid(rnd, torch.empty(shape, dtype=dtype).uniform_(low, high))


def a_shape(rnd):
    return [rnd.choice((1, 2, 3, 7, 20, 80)) for _ in range(rnd.randrange(0, 5) % 4)] if rnd.randrange(8) else [
        (70, 100), (3, 4096), (5000,), (2, 7, 30, 20)][rnd.randrange(4)]


def weight(rnd, shape, dtype):
    """Nothing, or of a shape that broadcasts."""
    if rnd.randrange(3) == 0:
        return None
    own = [1 if rnd.randrange(3) == 0 else n for n in shape][rnd.choice((0, 0, len(shape) // 2)):]
    return laid(rnd, torch.empty(own, dtype=dtype).uniform_(0.2, 2))


def distance(f, name):
    def make(rnd, shape, dtype, reduction):
        x, y = drawn(rnd, shape, dtype), drawn(rnd, shape, dtype)
        bend = rnd.choice((1.0, 0.5, 2.0, 0.3, 1.7) + ((0.0,) if name == "beta" else ()))
        return lambda x, y: f(x, y, reduction=reduction, **{name: bend}), x, y
    return make


def soft_margin(rnd, shape, dtype, reduction):
    x, y = drawn(rnd, shape, dtype), drawn(rnd, shape, dtype)
    return lambda x, y: F.soft_margin_loss(x, y, reduction=reduction), x, y


def bce(rnd, shape, dtype, reduction):
    x, y, w = drawn(rnd, shape, dtype, 0.01, 0.99), drawn(rnd, shape, dtype, 0, 1), weight(rnd, shape, dtype)
    return lambda x, y: F.binary_cross_entropy(x, y, w, reduction=reduction), x, y


def logits(rnd, shape, dtype, reduction):
    x, y = drawn(rnd, shape, dtype), drawn(rnd, shape, dtype, 0, 1)
    w, p = weight(rnd, shape, dtype), weight(rnd, shape, dtype)
    return lambda x, y: F.binary_cross_entropy_with_logits(x, y, w, reduction=reduction, pos_weight=p), x, y


LOSSES = {"smooth_l1": distance(F.smooth_l1_loss, "beta"), "huber": distance(F.huber_loss, "delta"),
          "soft_margin": soft_margin, "bce": bce, "logits": logits}


def drawn_loss(name, seed):
    """(loss, input, target, what draws on)"""
    rnd = random.Random(f"{name} {seed}")
    torch.manual_seed(seed)
    dtype = rnd.choice((torch.float32, torch.float64))
    return *LOSSES[name](rnd, a_shape(rnd), dtype, rnd.choice(REDUCTIONS)), rnd


def compare(f, run, *operands, close):
    want = f(*operands)
    for _ in range(3):
        got = run(*operands)
        assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
        torch.testing.assert_close(got, want, equal_nan=True, **close)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_eager(name, threads):
    for seed in range(70):
        f, x, y, rnd = drawn_loss(name, seed)
        compare(f, dycl.accelerate(f), x, y, close=CLOSE[x.dtype])


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_eager(name, threads):
    """Of the input, and of the target where it has one."""
    for seed in range(40):
        f, x, y, rnd = drawn_loss(name, seed)
        both = name in ("smooth_l1", "huber")
        one = rnd.randrange(2)
        g = torch.randn((), dtype=x.dtype).expand(f(x, y).shape) if one else torch.randn_like(f(x, y))
        run = dycl.accelerate(f)
        for _ in range(3):
            answers = []
            for call in (f, run):
                leaves = [x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_(both)]
                answers.append(torch.autograd.grad(call(*leaves), leaves[:1 + both], g))
            for want, got in zip(*answers, strict=True):
                assert got.stride() == want.stride() or name == "bce"  # test_hosted_backward.py, LAID_OTHERWISE
                torch.testing.assert_close(got, want, **CLOSE[x.dtype])


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_differences(name):
    """In float64, beside the bends of what has any."""
    for seed in range(8):
        rnd = random.Random(seed)
        torch.manual_seed(seed)
        f, x, y = LOSSES[name](rnd, [3, 5], torch.float64, rnd.choice(REDUCTIONS))
        run = dycl.accelerate(lambda x: f(x, y).sum())
        x = x.detach().clone()
        for _ in range(3):
            leaf = x.clone().requires_grad_()
            gradient, = torch.autograd.grad(run(leaf), leaf)
        for i in range(15):
            step = torch.zeros(15, dtype=torch.float64)
            step[i] = 1e-6
            step = step.view(3, 5)
            slope = (run(x + step) - run(x - step)) / 2e-6
            assert abs(slope - gradient.flatten()[i]) < 1e-5 * (1 + abs(slope)), (seed, i)


ODD = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 30.0, -30.0, 100.0, -100.0, 1e-30, 1e30, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("name, f", (
    ("smooth_l1", F.smooth_l1_loss), ("smooth_l1, 0", lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.0, **k)),
    ("smooth_l1, 0.3", lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.3, **k)), ("huber", F.huber_loss),
    ("huber, 0.5", lambda x, y, **k: F.huber_loss(x, y, delta=0.5, **k)), ("soft_margin", F.soft_margin_loss),
    ("logits", F.binary_cross_entropy_with_logits),
    ("logits, positive", lambda x, y, **k: F.binary_cross_entropy_with_logits(
        x, y, pos_weight=torch.tensor(3.0, dtype=x.dtype), **k))))
def test_edges(name, f, dtype):
    """Every pair of odd values: ties, infinities, NaN; each in a vector and behind the last whole one."""
    x = torch.tensor(ODD, dtype=dtype).repeat_interleave(len(ODD))
    y = torch.tensor(ODD, dtype=dtype).repeat(len(ODD))
    for x, y in ((x, y), (x[:251], y[:251]), (x[5:], y[5:])):
        each = lambda x, y: f(x, y, reduction="none")  # noqa: E731
        run = dycl.accelerate(each)
        compare(each, run, x, y, close=CLOSE[dtype])
        for _ in range(3):
            answers = []
            for call in (each, run):
                leaf = x.clone().requires_grad_()
                answers.append(torch.autograd.grad(call(leaf, y), leaf, torch.ones_like(x))[0])
            torch.testing.assert_close(answers[1], answers[0], equal_nan=True, **CLOSE[dtype])


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_edges_of_shares(dtype):
    shares = [0.0, -0.0, 1.0, 0.5, 1e-30, 1e-40, 1 - 1e-7, 5e-324]
    x = torch.tensor(shares, dtype=dtype).repeat_interleave(len(shares))
    y = torch.tensor(shares, dtype=dtype).repeat(len(shares))
    each = lambda x, y: F.binary_cross_entropy(x, y, reduction="none")  # noqa: E731
    run = dycl.accelerate(each)
    compare(each, run, x, y, close=CLOSE[dtype])
    for _ in range(3):
        answers = []
        for call in (each, run):
            leaf = x.clone().requires_grad_()
            answers.append(torch.autograd.grad(call(leaf, y), leaf, torch.ones_like(x))[0])
        torch.testing.assert_close(answers[1], answers[0], **CLOSE[dtype])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("bad", (-1e-30, 1.0000001, math.nan, math.inf, -math.inf))
@pytest.mark.parametrize("where", ("input", "target"))
@pytest.mark.parametrize("place", (0, 37, 4999, 5001))
def test_what_is_no_share(where, bad, reduction, place):
    """torch's error, and the program goes on."""
    f = lambda x, y: F.binary_cross_entropy(x * 1, y * 1, reduction=reduction) * 2  # noqa: E731
    run, x, y = dycl.accelerate(f), torch.rand(5002), torch.rand(5002)
    for _ in range(3):
        run(x, y)
    broken = {"input": (x.clone(), y), "target": (x, y.clone())}[where]
    broken[where == "target"][place] = bad
    with pytest.raises(RuntimeError) as want:
        f(*broken)
    for _ in range(2):
        with pytest.raises(RuntimeError) as got:
            run(*broken)
        assert str(got.value) == str(want.value)
        compare(f, run, x, y, close=CLOSE[torch.float32])


def test_sums_of_many_are_exact_enough():
    """A million equal terms, of either dtype; twice the same to the bit."""
    for dtype, most in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
        x, y = torch.full((1000, 1000), 0.3, dtype=dtype), torch.zeros(1000, 1000, dtype=dtype)
        run = dycl.accelerate(lambda x, y: F.huber_loss(x, y))
        once = [run(x, y).item() for _ in range(4)]
        assert len(set(once[1:])) == 1
        assert abs(once[-1] / (0.5 * x[0, 0].item() ** 2) - 1) < most


@pytest.mark.parametrize("operands", (
    lambda x: (x, x[:, :1].expand_as(x).bfloat16()), lambda x: (x.double(), x), lambda x: (x[:0], x[:0]),
    lambda x: (x.bfloat16(), x.bfloat16())))
def test_what_is_left_to_torch(operands):
    """Two dtypes, nothing, floats of 16 bits."""
    x, y = operands(torch.randn(6, 5))
    for f in (F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.binary_cross_entropy_with_logits):
        compare(f, dycl.accelerate(lambda x, y, f=f: f(x, y)), x, y, close=dict(rtol=1e-2, atol=1e-3))


@pytest.mark.parametrize("name", LOSSES)
def test_the_kernel_is_our_own(name):
    rnd = random.Random(1)
    f, x, y = LOSSES[name](rnd, [6, 70], torch.float32, "mean")
    x, y = x.clone().requires_grad_(), y.clone()
    run = dycl.accelerate(f)
    for _ in range(6):
        run(x, y).backward()
    text = str(dycl.explain(run))
    assert re.search(r"^ *\d+ loss ", text, re.M) and not re.search(r"^ *\d+ torch ", text, re.M), text
