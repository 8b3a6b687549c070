"""Random programs: views, in-place writes, reductions, products, branches on values, in random order on random shapes,
eager against dycl.

Every tensor of the program is compared at its end (values, dtype, strides, sharing of memory), three calls each: cold
plan, tuned plan, again."""

import os
import random

import pytest
import torch

import dycl

COUNT = 2000 if os.environ.get("DYCL_TEST_FULL") else 150


def steps(rng):
    """A program as data: (kind, operand indices and numbers), so that each call does the same."""
    return [(rng.choice(list(KINDS)), [rng.random() for _ in range(6)]) for _ in range(rng.randint(4, 22))]


def pick(pool, r):
    return pool[int(r * len(pool))]


def unary(pool, r):
    x = pick(pool, r[0])
    name = pick(["tanh", "sigmoid", "exp", "abs", "neg", "relu", "square", "cos"], r[1])
    return getattr(torch, name)(x.clamp(-3, 3) if name == "exp" else x)


def binary(pool, r):
    x, y = pick(pool, r[0]), pick(pool, r[1])
    try:
        torch.broadcast_shapes(x.shape, y.shape)
    except RuntimeError:
        y = y.mean()
    return pick([torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, lambda a, b: a / (b.abs() + 1)],
                r[2])(x, y)


def scalar(pool, r):
    x, value = pick(pool, r[0]), pick([0.5, 2, -1.25, 3], r[1])
    return pick([lambda: x * value, lambda: value - x, lambda: x + value, lambda: x / value], r[2])()


def view(pool, r):
    x = pick(pool, r[0])
    if x.dim() == 0:
        return x.reshape(1)
    d = int(r[1] * x.dim())
    n = x.shape[d]
    return pick(
        [
            lambda: x.transpose(d, -1),
            lambda: x.unsqueeze(d),
            lambda: x.narrow(d, int(r[2] * n), n - int(r[2] * n)) if n else x,
            lambda: x.reshape(-1),
            lambda: x.select(d, int(r[2] * n)) if n else x,
            lambda: x.chunk(2, d)[0],
            lambda: x[..., ::2],
            lambda: x.flatten(),
            lambda: x.expand(2, *x.shape) if x.dim() < 5 else x,
        ],
        r[3],
    )()


def reduce(pool, r):
    x = pick(pool, r[0])
    if x.dim() == 0 or x.numel() == 0:
        return x.sum()
    d = int(r[1] * x.dim())
    return pick([lambda: x.sum(d), lambda: x.mean(d, keepdim=True), lambda: x.amax(d), lambda: x.softmax(d),
                 lambda: x.var(d, correction=0), lambda: x.mean()], r[2])()


def product(pool, r):
    x = pick(pool, r[0])
    flat = x.reshape(-1)[:12]
    if flat.numel() < 12:
        return x
    return pick([lambda: flat.view(3, 4) @ flat.view(4, 3), lambda: flat.view(2, 6) @ flat.view(2, 6).T,
                 lambda: torch.nn.functional.linear(flat.view(3, 4), flat.view(3, 4))], r[1])()


def write(pool, r):
    x = pick(pool, r[0])
    if any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride())):
        return x  # torch refuses to write to expanded memory
    y = pick([lambda: x.add_(1), lambda: x.mul_(0.5), lambda: x.relu_(), lambda: x.zero_()], r[1])()
    assert y is x
    return x


def assign(pool, r):
    x = pick(pool, r[0])
    if x.dim() and x.numel() and all(s or n < 2 for n, s in zip(x.shape, x.stride())):
        x[0] = r[1]
    return x


def branch(pool, r):
    x = pick(pool, r[0])
    return x + 1 if x.numel() and x.sum() > 0 else x * -1


def fetch(pool, r):
    x = pick(pool, r[0])
    return pool[0] * (x.mean().item() if x.numel() else 1.0)


def copy(pool, r):
    x = pick(pool, r[0])
    return pick([lambda: x.clone(), lambda: x.contiguous(), lambda: torch.cat([x, x]) if x.dim() else x + 0,
                 lambda: x.detach(), lambda: x.double().float()], r[1])()


KINDS = {f.__name__: f for f in (unary, binary, scalar, view, reduce, product, write, assign, branch, fetch, copy)}
# twenty operators in a row, some of which amplify (division, variance, exp up to e^3)
TOLERANCE = dict(rtol=2e-4, atol=2e-4)


def program_of(plan):
    def program(x, y):
        pool = [x, y]
        for kind, numbers in plan:
            made = KINDS[kind](pool, numbers)
            if made.numel() <= 4096:
                pool.append(made)
        return pool

    return program


def sharing(tensors):
    return [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in tensors] for a in tensors
            if a.numel()]


@pytest.mark.parametrize("seed", range(COUNT))
def test_program(seed):
    rng = random.Random(seed)
    plan = steps(rng)
    shapes = [tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 4))) for _ in range(2)]
    program = program_of(plan)
    accelerated = dycl.accelerate(program)
    with torch.no_grad():
        for call in range(3):
            torch.manual_seed(1000 * seed + call)
            x, y = torch.randn(shapes[0]), torch.randn(shapes[1])
            expected = program(x.clone(), y.clone())
            got = accelerated(x.clone(), y.clone())
            assert len(got) == len(expected)
            for i, (g, e) in enumerate(zip(got, expected)):
                assert type(g) is type(e) and g.dtype == e.dtype and g.shape == e.shape and g.stride() == e.stride(), \
                    (i, plan)
                large = e.abs().max().item() if e.numel() else 0
                torch.testing.assert_close(g, e, rtol=TOLERANCE["rtol"], atol=TOLERANCE["atol"] * max(1.0, large),
                                           equal_nan=True, msg=lambda m: f"{i} of {plan}\n{m}")
            assert [[a is b for b in got] for a in got] == [[a is b for b in expected] for a in expected], plan
            assert sharing(got) == sharing(expected), plan
