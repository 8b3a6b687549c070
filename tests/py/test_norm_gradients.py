"""Gradients of layer and group norms, which are one step (kern/group_norm_back.c): sizes, orders of memory, which of
them are wanted, numbers that are none; as eager's, with one thread and two."""

import random

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import threads  # noqa: F401 (a fixture)

BOUND = {torch.float32: 1e-5, torch.float64: 1e-11}  # of the largest gradient
NORMS = {
    "layer": lambda x, w, b, groups: F.layer_norm(x, x.shape[1:], w, b),
    "last": lambda x, w, b, groups: F.layer_norm(x, x.shape[-1:], w, b),
    "group": lambda x, w, b, groups: F.group_norm(x, groups, w, b),
}


def laid(rnd, x):
    how = rnd.randrange(4)
    if how == 0:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if how == 1 and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.repeat_interleave(2, 0)[::2] if how == 2 else x.clone()


def program(rnd, name):
    """(a call, operands): sizes on both sides of a vector, of a block of rows and of what a thread is worth."""
    dtype, groups = rnd.choice((torch.float32, torch.float32, torch.float64)), rnd.choice((1, 2, 5))
    shape = [rnd.choice((0, 1, 3, 4, 9, 40)), groups * rnd.choice((1, 2, 7, 20)),
             *[rnd.choice((1, 2, 5, 17, 40)) for _ in range(rnd.randrange(3))]]
    if name == "last" and rnd.randrange(3) == 0:
        shape = [rnd.choice((3, 700)), rnd.choice((16, 33, 600, 1100))]
    x = laid(rnd, torch.randn(shape, dtype=dtype) + rnd.choice((0, 5)))
    of = {"layer": shape[1:], "last": shape[-1:], "group": shape[1:2]}[name]
    w, b = (torch.randn(of, dtype=dtype) if rnd.randrange(4) else None for _ in range(2))
    operands = [t if t is None else t.requires_grad_(rnd.randrange(5) > 0) for t in (x, w, b)]
    if name == "group":  # where others learn, torch's own kernels read what is not there
        operands = [x.requires_grad_(), w, b if w is not None else None]
    call = NORMS[name]
    return (lambda x, w, b: call(x, w, b, groups)), operands


def strides(x):
    """Since torch 2.14 a group norm's gradient has those of x where there is one element, too."""
    return [n for n, size in zip(x.stride(), x.shape) if size > 1 or torch.__version__ < "2.14"]


def gradients(call, operands, given):
    wanted = [t for t in operands if t is not None and t.requires_grad]
    return torch.autograd.grad(call(*operands), wanted, given) if wanted else ()


@pytest.mark.parametrize("name", NORMS)
def test_as_eager(name, threads):
    rnd = random.Random(name)
    torch.manual_seed(0)
    for _ in range(60):
        call, operands = program(rnd, name)
        try:
            y = call(*operands)
        except (RuntimeError, ValueError):  # one element a group
            continue
        given = laid(rnd, torch.randn_like(y))
        accelerated = dycl.accelerate(lambda *a: call(*a))
        doubles = [t if t is None else t.detach().double().requires_grad_(t.requires_grad) for t in operands]
        truth = gradients(call, doubles, given.double())  # groups of two elements cancel, and eager is far from it
        for _ in range(2):
            ours, theirs = (gradients(f, operands, given) for f in (accelerated, call))
            for mine, other, exact in zip(ours, theirs, truth):
                assert mine.dtype == other.dtype and strides(mine) == strides(other) and mine.shape == other.shape
                if other.numel():
                    bound = BOUND[other.dtype] * max(other.abs().max().item(), 1)
                    assert (mine - exact).abs().max() <= bound + 2 * (other - exact).abs().max()
        assert dycl.stats(accelerated)["replays"] == 0


@pytest.mark.parametrize("shape", ((6, 20), (6, 20, 3), (6, 20, 50)))
@pytest.mark.parametrize("odd", (float("inf"), float("nan")))
def test_numbers_that_are_none(shape, odd):
    """Only the group that has one is touched, and each weight's gradient that it gives to."""
    torch.manual_seed(0)
    x, w, b = (torch.randn(s).requires_grad_() for s in (shape, shape[1], shape[1]))
    given = torch.randn(shape)
    given[2, 7] = odd
    call = lambda x, w, b: F.group_norm(x, 4, w, b)
    for mine, other in zip(*(gradients(f, (x, w, b), given) for f in (dycl.accelerate(call), call))):
        assert torch.equal(mine.isfinite(), other.isfinite())
        assert torch.equal(mine.isnan(), other.isnan())
        assert torch.allclose(mine[mine.isfinite()], other[mine.isfinite()], atol=1e-5)


@pytest.mark.parametrize("call", (lambda x, w, b: F.group_norm(x, 2, w, b),
                                  lambda x, w, b: F.layer_norm(x.view(-1, 6), (6,), w, b)))
def test_one_step(call):
    x, w, b = (torch.randn(s).requires_grad_() for s in ((8, 6, 5), 6, 6))
    accelerated = dycl.accelerate(call)
    for _ in range(3):
        gradients(accelerated, (x, w, b), torch.randn_like(call(x, w, b)))
    text = str(dycl.explain(accelerated))
    assert text.count("group norm back") == 1 and "computed again" not in text, text
