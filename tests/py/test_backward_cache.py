"""Backward graphs are built once for what is differentiated, and found again (csrc/exec/cache/backwards.h):
the same as eager's whatever is given and asked for from call to call, and no graph more
from the third step on."""

import gc
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from dycl import _core
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree


def built():
    return dycl.info()["backwards"]


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1], 6)
        for step in x:
            h, c = self.cell(step, (h, c))
        return self.head(h)


class Shown(nn.Module):
    """A node of autograd's graph for each layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(4))

    def forward(self, x):
        shown = []
        for layer in self.layers:
            x = x + F.gelu(layer(x))
            shown.append(x)
        return torch.stack([s.sum() for s in shown]), shown[1], shown[2]


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), (6, 5)),
    "cells": lambda: (Cells(), (7, 2, 4)),
    "shown": lambda: (Shown(), (3, 5)),
    "conv": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                   nn.Linear(36, 3)), (2, 3, 8, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_steps_that_repeat_build_no_graph(name):
    torch.manual_seed(0)
    model, size = MODELS[name]()
    dycl.accelerate(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    counts = []
    for _ in range(8):
        optimizer.zero_grad()
        out = model(torch.randn(size))
        sum(o.square().mean() for o in (out if isinstance(out, tuple) else (out,))).backward()
        optimizer.step()
        counts.append(built())
    assert counts[0] > 0 and counts[2:] == [counts[2]] * 6, counts


def test_graphs_that_alternate_are_all_kept():
    """Which gradients come and which are wanted changes from step to step."""
    model = dycl.accelerate(Shown())
    seen = {}
    for step in range(24):
        for i, p in enumerate(model.parameters()):
            p.requires_grad_((i + step) % 3 != 0)
        before = built()
        sums, first, second = model(torch.randn(3, 5))
        [sums.sum(), first.sum() + second.sum(), (sums.sum() + second.square().sum())][step // 3 % 3].backward()
        seen.setdefault(step // 9, 0)
        seen[step // 9] += built() - before
    assert seen[0] > 0 and seen[2] == 0, seen


def test_numbers_that_change_build_no_graph():
    """They are the pass's, not the graph's; and zeros, infinities and NaN among them."""
    def program(x, w, a, b):
        return torch.tanh(x @ w * a + b).pow(2.0) * a, (x @ w).sub(a).div(b)

    run = dycl.accelerate(program)
    x, w = torch.randn(4, 5), torch.randn(5, 5, requires_grad=True)
    for step, (a, b) in enumerate([(1.5, 2.5), (0.5, -1.25), (3.0, 2.0), (0.0, 7.0), (float("inf"), 1.5), (2.25, 0.0),
                                   (float("nan"), 0.5), (-1.5, 1e30)]):
        before = built()
        wanted = torch.autograd.grad([o.sum() for o in program(x, w, a, b)], w)
        found = torch.autograd.grad([o.sum() for o in run(x, w, a, b)], w)
        assert agree(wanted[0], found[0]), (a, b, wanted, found)
        assert step < 3 or built() == before


def test_what_is_wanted_of_a_tape_belongs_to_the_key():
    """torch says the same for each pass through a node, so the tape is asked itself."""
    x, weights = torch.randn(4, 5), [torch.randn(5, 5, requires_grad=True) for _ in range(2)]
    run = dycl.accelerate(lambda x, a, b: torch.tanh(torch.tanh(x @ a) @ b))
    for _ in range(3):
        result = run(x, *weights)  # kept: in torch 2.12 a node's saved tensors go with its results
        node = result.grad_fn
        gradients = (torch.ones(4, 5),)
        for needed in [(True, True), (True, False), (False, True), (True, True)]:
            found = node.tape.backward(node.saved_tensors, gradients, needed)
            assert tuple(g is not None for g in found) == needed
        before = built()
    node.tape.backward(node.saved_tensors, gradients, (False, True))
    assert built() == before


OPERATORS = [
    lambda x, w, n: torch.tanh(x @ w), lambda x, w, n: x * n + w[0], lambda x, w, n: F.gelu(x) * w[1],
    lambda x, w, n: torch.cat([x[:, 2:], x[:, :2]], 1), lambda x, w, n: F.layer_norm(x, x.shape[-1:], w[0], w[1]),
    lambda x, w, n: F.linear(x, w, w[2]), lambda x, w, n: torch.where(x > n, x, x * w[0]),
    lambda x, w, n: x.softmax(-1) + x, lambda x, w, n: x + x.mean(0, keepdim=True) * n, lambda x, w, n: x.relu() - w[3],
]


def random_program(chance):
    steps = [(chance.choice(OPERATORS), chance.randrange(3), chance.random() < 0.4)
             for _ in range(chance.randint(2, 8))]

    def program(x, weights, n):
        shown = []
        for operator, which, is_shown in steps:
            x = operator(x, weights[which], n)
            if is_shown:
                shown.append(x)
        return [*shown, x]

    return program


def one_call(chance, run, x, weights, numbers):
    """Some inputs need gradients, some results are given one, in some layout; some inputs are asked for."""
    rows, n = chance.choice([2, 2, 3]), chance.choice(numbers)
    needs = [chance.random() < 0.7 for _ in (x, *weights)]
    if not any(needs):
        needs[1] = True
    x, *weights = [t.detach().clone().requires_grad_(need) for t, need in zip((x[:rows], *weights), needs)]
    results = run(x, weights, n)
    given = [i for i, r in enumerate(results) if r.requires_grad and chance.random() < 0.6]
    layouts = [chance.randrange(3) for _ in results]
    inputs = [t for t in (x, *weights) if t.requires_grad and chance.random() < 0.7]
    twice = chance.random() < 0.3
    seen = [r.detach().clone() for r in results]
    if not given or not inputs:
        return seen
    cotangents = []
    for i in given:
        g = torch.sin(torch.arange(results[i].numel(), dtype=torch.float32)).reshape(results[i].shape)
        cotangents.append((g, g.t().contiguous().t(), g[:, :1].expand_as(g))[layouts[i]])
    for last in [False, True][not twice:]:
        seen += torch.autograd.grad([results[i] for i in given], inputs, cotangents, allow_unused=True,
                                    retain_graph=not last)
    return seen


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_whose_gradients_change(seed):
    torch.manual_seed(seed)
    program = random_program(random.Random(seed))
    x, weights = torch.randn(3, 5), [torch.randn(5, 5) for _ in range(3)]
    seen = []
    for run in (program, dycl.accelerate(program)):
        chance = random.Random(seed + 1000)
        seen.append([one_call(chance, run, x, weights, [0.5, 2.0, -1.0, 0.0]) for _ in range(14)])
    for call, (wanted, found) in enumerate(zip(*seen)):
        assert len(wanted) == len(found)
        for i, (a, b) in enumerate(zip(wanted, found)):
            assert (a is None) == (b is None) and (a is None or agree(a, b)), f"call {call}, {i}: {a} and {b}"


def test_what_is_kept_has_a_bound_and_dies_with_the_plans():
    """Far more sets of gradients than are kept; behind them, nothing is left that a cleared cache would not free."""
    def program(x, weights):
        return torch.tanh(sum(torch.tanh(x @ w) for w in weights))

    run = dycl.accelerate(program)
    weights = [torch.randn(4, 4, requires_grad=True) for _ in range(10)]

    def steps(chosen):
        for which in chosen:
            result = run(torch.randn(2, 4), weights)  # kept, as above
            node = result.grad_fn
            node.tape.backward(node.saved_tensors, (torch.ones(2, 4),), tuple(bool(which >> i & 1) for i in range(10)))

    steps(range(1, 400))
    before, bytes_before = built(), dycl.info()["plan_bytes"]
    steps(range(399, 390, -1))  # the last ones are there
    assert built() == before
    steps([1, 2])  # the first ones are not
    assert built() > before
    before = built()
    _core.forget()
    gc.collect()
    assert dycl.info()["plan_bytes"] < bytes_before
    steps([399])
    assert built() > before


def test_the_graph_of_a_recorded_loop():
    """A program computes what a backward pass does, in loops whose trip count changes: one segment, in pieces."""
    weight = torch.rand(4, 5)
    counts = (8, 14, 9, 17, 21, 11, 19)

    def chain(x, count):
        for _ in range(count):
            x = x * weight
        return x

    forward, by_hand = dycl.accelerate(chain), dycl.accelerate(lambda gradient, count: chain(gradient, count))
    torch.manual_seed(0)
    for count in counts:
        with torch.no_grad():
            by_hand(torch.randn(4, 5), count)
    assert "runs as" in dycl.explain(by_hand)
    for count in counts:
        x, gradient = torch.randn(4, 5, requires_grad=True), torch.randn(4, 5)
        forward(x, count).backward(gradient)
        torch.testing.assert_close(x.grad, chain(gradient, count), rtol=1e-5, atol=1e-6)
