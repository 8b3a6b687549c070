"""Elements picked by index, and gradients of parts of one tensor, against eager: random shapes, layouts and parts."""

import random

import pytest
import torch

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

PICKS = {
    "gather": lambda x, i, d: x.gather(d, i),
    "gather, expanded": lambda x, i, d: x.gather(d, i.select(1 - d, 0).unsqueeze(1 - d).expand(i.shape)),
    "take_along_dim": lambda x, i, d: x.take_along_dim(i, d),
    "index_select": lambda x, i, d: x.index_select(d, i.flatten()[:7]),
    "narrow integers": lambda x, i, d: x.index_select(d, i.flatten()[:7].int()),
    "counted": lambda x, i, d: x.index_select(d, torch.arange(x.shape[d] - 1, -1, -2)),
    "one position": lambda x, i, d: x.index_select(d, torch.arange(1, 2)),
    "flip": lambda x, i, d: x.flip(d),
    "cumsum": lambda x, i, d: x.cumsum(d),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


def matrix(rng, rows, columns, dtype):
    turned = rng.random() < 0.3
    x = torch.randint(-4, 5, (columns, rows) if turned else (rows, columns)).to(dtype)
    return x.t() if turned else x


@pytest.mark.parametrize("name", PICKS)
def test_picked(name):
    rng = random.Random(name)
    torch.manual_seed(0)
    for _ in range(30):
        rows, columns, dim = rng.randint(2, 40), rng.choice((2, 5, 33, 600)), rng.randint(0, 1)
        x = matrix(rng, rows, columns, rng.choice(DTYPES))
        index = torch.randint(0, x.shape[dim], (rows, columns))

        def f(x, index=index, dim=dim):
            return PICKS[name](x + x, index, dim)

        run = dycl.accelerate(f)
        for _ in range(2):
            expected, found = f(x), run(x)
            assert torch.equal(found, expected) and found.stride() == expected.stride()
        if x.is_floating_point() and x.dtype != torch.bfloat16:
            x.requires_grad_()
            y = f(x)
            g = torch.randint(-4, 5, y.shape).to(y.dtype)
            assert torch.equal(torch.autograd.grad(run(x), x, g)[0], torch.autograd.grad(y, x, g)[0])


def outcome(run, x, index):
    try:
        return run(x, index).clone()
    except (RuntimeError, IndexError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("bad", (-1, 7, 10**12, -(10**12)))
@pytest.mark.parametrize("name", ("gather", "gather, expanded", "take_along_dim", "index_select"))
def test_out_of_range(name, bad):
    x = torch.rand(7, 7)
    for place in (0, 1, 6):
        index = torch.zeros(7, 7, dtype=torch.int64)
        index[:, place] = bad
        for offset in (0, 1):  # a computed index too

            def f(x, index, offset=offset):
                return PICKS[name](x + 1, index + offset - 1 if offset else index, 1)

            expected, found = outcome(f, x, index), outcome(dycl.accelerate(f), x, index)
            assert torch.equal(found, expected) if torch.is_tensor(expected) else found == expected


def drawn(rng, x):
    """A part of x, often of the same kind."""
    kind = rng.randrange(8)
    i, j = rng.randrange(x.shape[0]), rng.randrange(x.shape[1])
    if kind < 2:
        return lambda x: x[i]
    if kind == 2:
        return lambda x: x[:, j]
    if kind == 3:
        return lambda x: x[i, j]
    if kind == 4:
        return lambda x: x[i:, : j + 1]
    if kind == 5:
        return lambda x: x[i : i + 2].transpose(0, 1)
    if kind == 6:
        return lambda x: x[:, ::2]
    return lambda x: x.select(0, i).narrow(0, j, 1).expand(3, *x.shape[2:]) if x.dim() == 2 else x[i, j, 1:]


@pytest.mark.parametrize("seed", range(60))
def test_gradients_of_parts(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    shape = (rng.randint(1, 12), rng.randint(1, 9), *([] if seed % 2 else [rng.randint(2, 4)]))
    x = torch.randint(-4, 5, shape).double()
    if rng.random() < 0.3:
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    x.requires_grad_()
    parts = [drawn(rng, x) for _ in range(rng.randint(1, 14))]
    weights = [float(rng.randint(-4, 4)) for _ in parts]

    def f(x):
        y = x * 2 if seed % 3 else x
        return sum((part(y) ** 2).sum() * w for part, w in zip(parts, weights))

    run = dycl.accelerate(f)
    for _ in range(3):
        (expected,), (found,) = torch.autograd.grad(f(x), x), torch.autograd.grad(run(x), x)
        assert torch.equal(found, expected)  # how they lie: test_gradient_layouts.py


LOOPS = {
    "unbind": lambda x, keep: [t for t, k in zip(x.unbind(0), keep) if k],
    "loop": lambda x, keep: [t * 3 for t, k in zip(x, keep) if k],
    "split": lambda x, keep: [t for t, k in zip(x.split(2), keep) if k],
    "columns": lambda x, keep: [x[:, i] for i in range(x.shape[1]) if keep[i]],
    "columns of rows": lambda x, keep: [r[i] for r in x for i in range(x.shape[1]) if keep[i]],
    "twice": lambda x, keep: [x[i] for i in range(x.shape[0]) if keep[i]] + [x[i] for i in range(0, x.shape[0], 3)],
    "windows": lambda x, keep: [x[i : i + 4] for i in range(x.shape[0] - 4) if keep[i]],
}


@pytest.mark.parametrize("size", (3, 70, 150))
@pytest.mark.parametrize("name", LOOPS)
def test_gradients_of_many_parts(name, size):
    """More of them than a join has operands."""
    if name == "columns of rows":
        size = min(size, 40)
    for share in (1, 2, 5):
        keep = [i % share == 0 for i in range(200)]
        x = torch.randint(-4, 5, (size, min(size, 80), 2)).double().requires_grad_()

        def f(x, keep=keep):
            parts = LOOPS[name](x, keep)
            return sum((p * p).sum() for p in parts) if parts else x.sum()

        run = dycl.accelerate(f)
        for _ in range(3):
            (expected,), (found,) = torch.autograd.grad(f(x), x), torch.autograd.grad(run(x), x)
            assert torch.equal(found, expected) and found.stride() == expected.stride()
