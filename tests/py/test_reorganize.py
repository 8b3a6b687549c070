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
