"""A copy of runs of elements is an address to read from inside a block, a part of a concatenation one to write to: same
values, no step of its own."""

import random

import pytest
import torch
import torch.nn.functional as F
from same import same

import dycl


def steps_of(function, *arguments):
    with torch.no_grad():
        accelerated = dycl.accelerate(function)
        for _ in range(3):
            accelerated(*arguments)
    text = dycl.explain(accelerated)
    return [line for line in text.splitlines() if line[:4].strip().isdigit()]


def test_a_copy_is_read_where_it_lies():
    program = lambda x: torch.tanh(x[:, ::2, :24].contiguous()) + 1  # noqa: E731
    same(program, lambda: (torch.randn(4, 6, 32),))
    assert len(steps_of(program, torch.randn(4, 6, 32))) == 1


def test_a_part_is_made_where_it_will_lie():
    def program(x, y):
        return torch.cat((torch.relu(x), y.softmax(-1)), 1) * 2

    same(program, lambda: (torch.randn(3, 5, 8), torch.randn(3, 4, 8)))
    steps = steps_of(program, torch.randn(3, 5, 8), torch.randn(3, 4, 8))
    assert len(steps) == 3 and not any("copy" in step for step in steps), steps

    def rotated(x):
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), -1)

    same(rotated, lambda: (torch.randn(2, 3, 8),))
    assert sum("copy" in step for step in steps_of(rotated, torch.randn(2, 3, 8))) == 1


def inverse(order):
    return sorted(range(len(order)), key=order.__getitem__)


@pytest.mark.parametrize("seed", range(90))
def test_random(seed):
    """Elementwise and row-wise operators around permutations, slices and copies, of sizes that are often alike."""
    chance = random.Random(seed)
    rank = chance.randint(2, 4)
    shape = [chance.choice((1, 2, 3, 16, 16)) for _ in range(rank - 1)] + [chance.choice((16, 16, 20, 3))]
    plan = [(chance.randrange(9), chance.sample(range(rank), rank) if chance.random() < 0.5
             else [*chance.sample(range(rank - 1), rank - 1), rank - 1],
             chance.randrange(rank)) for _ in range(6)]

    def program(x):
        kept = []
        for what, order, dim in plan:
            if what == 0:
                x = torch.tanh(x)
            elif what == 1 and x.shape[-1] >= 16:  # of few elements it magnifies rounding
                x = F.layer_norm(x, x.shape[-1:])
            elif what == 2:
                x = x.permute(order).contiguous()
            elif what == 3:
                x = x.permute(order) * 1.5
            elif what == 4:
                x = x.narrow(dim, 0, max(1, x.shape[dim] - 1)).contiguous() + 0.5
            elif what == 5:
                x = x.softmax(-1).permute(order).contiguous()
            elif what == 6:
                x = x + x.mean(-1, keepdim=True)
                kept.append(x)
            else:
                part = x.narrow(dim, 0, (x.shape[dim] + 1) // 2)
                x = torch.cat((-part, x, (part * 0.5).permute(order).permute(inverse(order))) if what == 7
                              else (x * 1.5, part), dim)
        return x, kept

    same(program, lambda: (torch.randn(shape),), recorded=None, like="mean")


ATTRIBUTES = {"tril": lambda x: [x.tril(k) for k in range(-9, 9)], "triu": lambda x: [x.triu(k) for k in range(-9, 9)],
              "pad": lambda x: [F.pad(x, (a, 3 - a, b, 3 - b)) for a in range(4) for b in range(4)],
              "sum": lambda x: [x.sum(d, k) for d in (0, 1, (0, 1)) for k in (False, True)],
              "softmax": lambda x: [x.softmax(d) for d in (0, 1)], "cumsum": lambda x: [x.cumsum(d) for d in (0, 1)],
              "roll": lambda x: [x.roll(k, d) for k in range(5) for d in (0, 1)],
              "cast": lambda x: [x.to(t).float() for t in (torch.int32, torch.int64, torch.bfloat16, torch.float16,
                                                           torch.float64, torch.uint8, torch.bool)],
              "var": lambda x: [x.var(d, correction=c) for d in (0, 1) for c in (0, 1, 2)],
              "argmax": lambda x: [x.argmax(d) for d in (0, 1)] + [x.argmin(d) for d in (0, 1)],
              "cat": lambda x: [torch.cat([x, x], d) for d in (0, 1)],
              "avg_pool": lambda x: [F.avg_pool1d(x, k, s, p) for k in (2, 3) for s in (1, 2, 3) for p in (0, 1)],
              "topk": lambda x: [x.topk(k, 1, big)[0] for k in (1, 2, 3, 4) for big in (False, True)]}


@pytest.mark.parametrize("names", [*[[n] for n in ATTRIBUTES], list(ATTRIBUTES)], ids=lambda n: f"{n[0]}-{len(n)}")
def test_operators_that_differ_in_their_attributes_are_several(names):
    """What is computed once for all of its equals: attributes belong to what is equal."""
    def program(x):
        return [y * 2 for name in names for y in ATTRIBUTES[name](x)]

    accelerated = dycl.accelerate(program)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(7, 7).abs() * 3
        with torch.no_grad():
            torch.testing.assert_close(accelerated(x), program(x))


@pytest.mark.parametrize("seed", range(12))
def test_parts_of_a_concatenation_that_are_results_too(seed):
    """What is computed where it will lie in the concatenation is not what the program gets besides."""
    r = random.Random(seed)
    shape = [r.randint(1, 5) for _ in range(r.randint(1, 3))]
    dim, shown = r.randrange(len(shape)), [r.random() < 0.6 for _ in range(3)]
    makers = [r.choice([torch.relu, torch.sin, lambda t: t * 2, lambda t: t.exp() + 1]) for _ in shown]

    def program(x):
        parts = [make(x + i) for i, make in enumerate(makers)]
        return [part for part, out in zip(parts, shown) if out] + [torch.cat(parts, dim)]

    accelerated, x = dycl.accelerate(program), torch.randn(shape)
    for _ in range(3):
        for want, got in zip(program(x), accelerated(x), strict=True):
            assert want.stride() == got.stride()
            torch.testing.assert_close(got, want)
