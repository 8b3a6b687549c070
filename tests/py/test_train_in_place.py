"""Operators in place on what has a history: recorded where no operator needs what is overwritten; else
torch's, whose errors the program sees."""

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch

FRESH = {
    "exp": lambda x, y: (x * 0.2).exp(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "relu": lambda x, y: F.relu(x),
    "gelu": lambda x, y: F.gelu(x),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "product": lambda x, y: x @ y,
    "linear": lambda x, y: F.linear(x, y),
    "norm": lambda x, y: F.layer_norm(x, (4,)),
    "softmax": lambda x, y: x.softmax(-1),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "sum": lambda x, y: x.sum(0, keepdim=True) + y,
    "cat": lambda x, y: torch.cat([x, y], 1)[:, 2:6],
    "rows": lambda x, y: x[1:] + y[:-1].sum(),
    "transposed": lambda x, y: x.t() @ y,
    "view": lambda x, y: x.view(x.shape),
    "detached": lambda x, y: x.detach() * y,
    "square": lambda x, y: x.square(),
    "conv": lambda x, y: F.conv2d(x.reshape(1, 1, *x.shape), y.reshape(1, 1, *y.shape)[:, :, :1, :1])[0, 0],
    "norm of a batch": lambda x, y: F.batch_norm(x, None, None, training=True),
}
WRITES = {
    "relu_": lambda x, y: F.relu(x, inplace=True),
    "silu_": lambda x, y: F.silu(x, inplace=True),
    "leaky_relu_": lambda x, y: F.leaky_relu(x, 0.1, inplace=True),
    "leaky_relu_ that folds": lambda x, y: F.leaky_relu(x, -0.5, inplace=True),
    "elu_": lambda x, y: F.elu(x, inplace=True),
    "elu_ that folds": lambda x, y: F.elu(x, -0.5, inplace=True),
    "hardtanh_": lambda x, y: F.hardtanh(x, inplace=True),
    "clamp_": lambda x, y: x.clamp_(-1, 1),
    "add_": lambda x, y: x.add_(y[0]),
    "+=": lambda x, y: x.__iadd__(y[:1]),
    "-= number": lambda x, y: x.__isub__(1.5),
    "mul_": lambda x, y: x.mul_(y[0]),
    "mul_ number": lambda x, y: x.mul_(0.5),
    "div_": lambda x, y: x.div_(y[0].abs() + 1),
    "addcmul_": lambda x, y: x.addcmul_(y[0], y[0], value=0.5),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "tanh_": lambda x, y: torch.tanh_(x),
    "masked_fill_": lambda x, y: x.masked_fill_(y[0] > 0, 0.5),
    "zero_": lambda x, y: x.zero_(),
    "element": lambda x, y: x.__setitem__(0, y[0]),
    "copy_": lambda x, y: x.copy_(y[0]),
    "itself": lambda x, y: x.add_(x),
    "without gradients": lambda x, y: torch.no_grad()(lambda: x.mul_(2))(),
}


def program_of(rng):
    """Steps as (result, kind, operands); the operands' numbers are those of earlier results."""
    steps, count = [], 3
    for _ in range(rng.randint(2, 12)):
        if count > 3 and rng.random() < 0.5:
            steps.append(("write", rng.choice(list(WRITES)), rng.randrange(3 if rng.random() < 0.9 else 0, count),
                          rng.randrange(count)))
        else:
            steps.append(("make", rng.choice(list(FRESH)), rng.randrange(count), rng.randrange(count)))
            count += 1
    kept = sorted(rng.sample(range(3, count), rng.randint(1, count - 3))) if count > 3 else [0]
    dead = rng.random() < 0.5

    def run(*leaves):
        pool = list(leaves)
        for number, (what, kind, i, j) in enumerate(steps):
            x, y = pool[i], pool[j]
            if x is None or y is None or x.shape != (4, 4) or y.shape != (4, 4):
                x = y = leaves[2] * 1.0
            if what == "write":
                WRITES[kind](x, y)
            else:
                pool.append(FRESH[kind](x, y))
            if dead:  # what nobody asks for again
                later = {k for step in steps[number + 1:] for k in step[2:]} | set(kept) | {0, 1, 2}
                pool = [t if k in later else None for k, t in enumerate(pool)]
            del x, y
        return [pool[k] for k in kept]

    return run


def outcome(function, leaves):
    copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in leaves]
    seen = []
    try:
        results = function(*copies)
        seen += [(r.shape, r.stride(), r._version, r.requires_grad, r.is_leaf) for r in results]
        seen += [r.detach().clone() for r in results]
        loss = sum((r * 0.3).sin().sum() for r in results)
        if loss.requires_grad:
            loss.backward()
    except RuntimeError as error:
        text = str(error)
        return [*seen, "modified by an inplace operation" if "modified by an inplace" in text else text[:60]]
    return seen + [t.grad for t in copies]


def same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return agree(a, b)
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("seed", range(400))
def test_random_programs(seed):
    torch.manual_seed(seed)
    program = program_of(random.Random(seed))
    run = dycl.accelerate(program)
    leaves = [torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)]
    for _ in range(3):
        want, got = outcome(program, leaves), outcome(run, leaves)
        assert len(want) == len(got) and all(map(same, want, got)), (want, got, dycl.explain(run))


class Block(nn.Module):
    def __init__(self, width, act):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms, self.act = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2)), act

    def forward(self, x):
        y = self.norms[1](self.second(self.act(self.norms[0](self.first(x)))))
        y += x
        return self.act(y)


@pytest.mark.parametrize("act", [nn.ReLU(inplace=True), nn.LeakyReLU(0.1, inplace=True), nn.SiLU(inplace=True),
                                 nn.ReLU6(inplace=True), nn.ELU(inplace=True), nn.Hardswish(inplace=True)], ids=repr)
def test_residual_networks_are_one_segment(act):
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), act, Block(8, act), Block(8, act), nn.Flatten(), nn.Linear(8 * 36, 4))
    fast = dycl.accelerate(copy.deepcopy(plain))
    before = 0
    for call in range(4):
        x = torch.randn(2, 3, 8, 8)
        for model in (plain, fast):
            model.zero_grad()
            model(x).square().sum().backward()
        stats = dycl.stats(fast)
        assert stats["torch"] == 0 and (call == 0 or stats["segments"] == before + 1), dycl.explain(fast)
        before = stats["segments"]  # the first call of a process learns what torch's batch norm answers
    largest = max(p.grad.abs().max() for p in plain.parameters())
    for p, q in zip(plain.parameters(), fast.parameters()):
        assert (p.grad - q.grad).abs().max() <= 1e-5 * largest
