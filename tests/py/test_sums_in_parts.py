"""Sums of all that an elementwise chain makes: added up tile by tile, by several threads, whatever lies how."""

import random

import pytest
import torch

import dycl
from suite import FULL

SUMS = {
    "sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "squares": lambda x: (x * x).sum(),
    "magnitudes": lambda x: x.abs().sum(), "kept": lambda x: x.sum((-1, -2) if x.dim() == 2 else None, keepdim=True),
}


def drawn(r):
    """(function, operands) over a space of more than 16384 elements, about; operands may be broadcast or transposed."""
    shape = r.choice([(300, 77), (1, 20000), (131, 129), (5, 7, 600), (2, 3, 64, 63), (40000,), (17000, 2), (33, 1024)])
    dtype = r.choice([torch.float32, torch.float32, torch.float64])
    x = torch.randn(shape, dtype=dtype)
    y = torch.randn(shape[-1:] if r.random() < 0.4 else shape, dtype=dtype)
    if len(shape) == 2 and r.random() < 0.3:
        x = x.T.contiguous().T
    if r.random() < 0.2:
        x = torch.randn(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]
    name, chain = r.choice(list(SUMS)), r.randrange(4)
    keeps = r.random() < 0.4  # what is summed is a result, too

    def function(x, y):
        z = (x - y, x * y + 1, (x + y).tanh() * x, torch.where(x > y, x, y * 2))[chain]
        total = SUMS[name](z)
        return (total, z) if keeps else (total * 2 if chain == 1 else total,)

    return function, (x, y), name


@pytest.mark.parametrize("threads", (1, 2, 3))
@pytest.mark.parametrize("seed", range(8 if FULL else 3))
def test_sums(seed, threads):
    before, r = torch.get_num_threads(), random.Random(f"{seed} {threads}")
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    try:
        for _ in range(12):
            function, operands, name = drawn(r)
            run, want = dycl.accelerate(function), function(*operands)
            exact = function(*(t.double() for t in operands))
            for _ in range(3):
                got = run(*operands)
                for a, b, c in zip(got, want, exact, strict=True):
                    assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
                    far = (b.double() - c).abs().max().item() if b.dtype == torch.float32 else 0  # eager's own error
                    size = max(1e3, sum(t.double().square().sum().item() for t in operands))  # of what is added up
                    bound = 4 * far + (2e-7 if b.dtype == torch.float32 else 1e-15) * size
                    assert (a.double() - c).abs().max().item() <= bound, (name, a, b, c)
    finally:
        torch.set_num_threads(before)


def test_the_same_at_any_number_of_threads():
    x, y = torch.randn(500, 333), torch.randn(333)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            run = dycl.accelerate(lambda x, y: ((x - y) * x).mean())
            for _ in range(3):
                found.append(run(x, y).item())
            assert "mean" in dycl.explain(run)
    finally:
        torch.set_num_threads(before)
    assert len(set(found[1:3] + found[4:6] + found[7:9])) == 1, found


def test_one_pass():
    run = dycl.accelerate(lambda x, y: (x - y).square().mean())
    x, y = torch.randn(2, 256, 256)
    for _ in range(4):
        run(x, y)
    assert "sub square mean" in dycl.explain(run), dycl.explain(run)
