"""Products and attention of operands whose rows overlap in memory, or lie at odd steps: windows of what was computed,
with dimensions of size 1 anywhere, whose strides say nothing."""

import random

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import one_thread  # noqa: F401 (a fixture)


def windows(draw, rank, sizes):
    """A function that makes a view of those last sizes out of a flat tensor, and how many elements it needs."""
    if len(sizes) == 2 and rank > 2 and draw.random() < 0.5:  # one window after the other, with ones around them
        count, step, ahead = draw.choice([2, 3, 7]), draw.choice([1, 1, 2]), draw.randrange(rank - 1)
        needed = sizes[1] + step * (count - 1)
        shape = [1] * ahead + [needed] + [1] * (rank - 2 - ahead)
        return (lambda x: x[:needed].view(shape).unfold(ahead, sizes[1], step)), needed
    sizes = [draw.choice([1, 1, 2, 3]) for _ in range(rank - len(sizes))] + list(sizes)
    strides = [draw.choice([0, 1, 1, 2, 3, 5, 17]) for _ in sizes]
    if draw.random() < 0.6:
        strides[-1] = 1
    needed = 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
    return (lambda x: x.as_strided(sizes, strides)), needed


def product(draw):
    m, k, n = (draw.choice([1, 1, 2, 3, 5, 16, 33]) for _ in range(3))
    a, most = windows(draw, draw.choice([2, 3, 4, 5]), (m, k))
    if draw.random() < 0.5:
        w = torch.randn(k) if n == 1 else torch.randn(k, n)
        return lambda x: torch.matmul(a(x), w), most
    b, more = windows(draw, 2, (k, n))
    return lambda x: torch.matmul(a(x), b(x + 1)), max(most, more)


def linear(draw):
    m, k, n = (draw.choice([1, 2, 3, 5, 16, 33]) for _ in range(3))
    a, most = windows(draw, draw.choice([1, 2, 3, 4, 5]), (m, k))
    w, bias = torch.nn.Parameter(torch.randn(n, k)), torch.randn(n)
    return lambda x: F.linear(a(x), w, bias if n % 2 else None), most


def batches(draw):
    m, k, n, count = (draw.choice([1, 2, 3, 5, 16]) for _ in range(4))
    a, most = windows(draw, 3, (count, m, k))
    b, more = windows(draw, 3, (count, k, n))
    return lambda x: torch.bmm(a(x), b(x * 2)), max(most, more)


def attention(draw):
    """Whose queries lie one after the other: torch's kernel writes its result where they lie."""
    heads, m, k, d = (draw.choice([1, 2, 3, 8]) for _ in range(4))
    q, (v, needed) = torch.randn(2, heads, m, d), windows(draw, 4, (2, heads, k, d))
    return lambda x: F.scaled_dot_product_attention(q * 2, v(x + 1), v(x * 2)), needed


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("make", [product, linear, batches, attention])
def test_products_of_windows(make, part):
    for seed in range(60):
        draw = random.Random(1000 * part + seed)
        torch.manual_seed(seed)
        program, needed = make(draw)
        x = torch.randn(needed)
        run = dycl.accelerate(lambda x: program(x * 1.5))
        with torch.no_grad():
            want = program(x * 1.5)
            for call in range(4):
                got = run(x)
                assert got.stride() == want.stride()
                # At most 33 terms of the size of 1, in another order; a wrong row is off by as much as a term.
                assert torch.allclose(got, want, rtol=1e-5, atol=1e-5), (make.__name__, part, seed, call)
