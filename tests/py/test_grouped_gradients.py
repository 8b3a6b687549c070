"""Products of groups of rows with weights of their own (torch._grouped_mm, the experts of transformers' mixtures) in
training: results and gradients against torch's, with their strides, drawn at random; gradients of gradients; and that
nothing of it is left to torch."""

import random

import pytest
import torch
from torch.nn.functional import grouped_mm

import dycl
from suite import FULL, one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

PROGRAMS = {
    "alone": lambda x, w, ends: torch._grouped_mm(x, w, offs=ends),
    "between": lambda x, w, ends: torch._grouped_mm(x * 2, w, offs=ends).tanh() * 2,
    "computed weights": lambda x, w, ends: grouped_mm(x, w * 1.5, offs=ends) * torch.arange(w.shape[2]),
    "two": lambda x, w, ends: torch._grouped_mm(torch._grouped_mm(x, w, offs=ends).sigmoid(), (w * 2).mT, offs=ends),
    "rows of something larger": lambda x, w, ends: torch._grouped_mm(torch.cat([x, x], 1)[:, :x.shape[1]], w,
                                                                     offs=ends),
}


def drawn(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    groups, rows, inner, outer = rng.randint(1, 5), rng.randint(1, 20), 4 * rng.randint(1, 4), 4 * rng.randint(1, 4)
    ends = sorted(rng.randint(0, rows) for _ in range(groups - 1)) + [rows]
    lies = rng.random() < 0.5
    w = torch.randn(groups, outer, inner).mT if lies else torch.randn(groups, inner, outer)
    leaves = [t.detach().requires_grad_(rng.random() < 0.8) for t in (torch.randn(rows, inner), w)]
    return rng.choice(sorted(PROGRAMS)), leaves, torch.tensor(ends, dtype=torch.int32), rng.random() < 0.3


def outcome(program, leaves, ends, second):
    y = program(*leaves, ends)
    wanted = [t for t in leaves if t.requires_grad]
    if not wanted:
        return [y]
    torch.manual_seed(0)
    once = torch.autograd.grad(y, wanted, torch.randn_like(y), create_graph=second)
    more = [g for g in once if g.requires_grad]
    if second and more:
        return [y, *once, *torch.autograd.grad(sum(g.sin().sum() for g in more), wanted, allow_unused=True)]
    return [y, *once]


@pytest.mark.parametrize("seed", range(300 if FULL else 60))
def test_gradients(seed):
    name, leaves, ends, second = drawn(seed)
    run = dycl.accelerate(lambda *t: PROGRAMS[name](*t))
    want = outcome(PROGRAMS[name], leaves, ends, second)
    for _ in range(3):
        for a, b in zip(want, outcome(run, leaves, ends, second), strict=True):
            assert agree(a, b) and (a is None or second or a.stride() == b.stride())
    stats = dycl.stats(run)
    assert stats["replays"] == 0 and (second or stats["backward_replays"] == 0), dycl.explain(run)
    assert stats["torch"] == 0 or name == "rows of something larger", dycl.explain(run)
