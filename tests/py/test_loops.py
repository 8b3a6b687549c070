"""Loops and branches: trip counts and paths are the program's, and a few plans serve all of them."""

import random

import pytest
import torch
from torch import nn

import dycl


class Recurrent(nn.Module):
    """Two cells over time; keeps every state or only the last."""

    def __init__(self, keep):
        super().__init__()
        self.first, self.second, self.out = nn.LSTMCell(12, 24), nn.LSTMCell(24, 24), nn.Linear(24, 5)
        self.keep = keep

    def forward(self, x):
        h = c = g = d = torch.zeros(x.shape[1], 24)
        states = []
        for t in range(x.shape[0]):
            h, c = self.first(x[t], (h, c))
            g, d = self.second(h, (g, d))
            if self.keep:
                states.append(g)
        return self.out(torch.stack(states)) if self.keep else self.out(g), d, h


class Refine(nn.Module):
    """A loop without weights: normalises until the program says so."""

    def forward(self, x, trips):
        y = x
        for i in range(trips):
            y = torch.tanh(y - y.mean(-1, keepdim=True)) * (1.0 + 0.01 * i)
            y = y / (1.0 + y.abs().amax(-1, keepdim=True))
        return y, y.abs().sum()


class Branches(nn.Module):
    """Each layer is taken, left out, or taken another way, as `draw` says."""

    def __init__(self, layers=8):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(12, 12) for _ in range(layers)])
        self.norm = nn.LayerNorm(12)

    def forward(self, x, draw):
        kept = x
        for layer in self.layers:
            way = draw.randrange(4)
            if way == 0:
                x = x + torch.relu(layer(self.norm(x)))
            elif way == 1:
                x = torch.tanh(layer(x)) * 0.5
            elif way == 2:
                x, kept = layer(x).view(-1, 4, 3).transpose(1, 2).reshape(-1, 12) + kept, x
        return x, kept


class Tree(nn.Module):
    """Combines leaves as random trees do: each call another one."""

    def __init__(self):
        super().__init__()
        self.leaf, self.both = nn.Linear(6, 16), nn.Linear(16, 24)

    def node(self, x, draw, n):
        if n == 1:
            return self.leaf(x[draw.randrange(len(x))][None]).chunk(2, 1)
        first = draw.randrange(1, n)
        (a, c), (b, d) = self.node(x, draw, first), self.node(x, draw, n - first)
        i, f, o = self.both(torch.cat([a, b], 1)).chunk(3, 1)
        c = torch.sigmoid(i) * c + torch.sigmoid(f) * d
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, x, draw):
        return self.node(x, draw, 9)


@pytest.mark.parametrize("module", [Branches, Tree])
def test_few_plans_for_many_paths(module):
    torch.manual_seed(0)
    model, x = module().eval(), torch.randn(5, 12 if module is Branches else 6)
    seeds = [n % 130 for n in range(300)]  # some paths come back
    with torch.no_grad():
        expected = {seed: model(x, random.Random(seed)) for seed in set(seeds)}
        dycl.accelerate(model)
        made = []
        for n, seed in enumerate(seeds):
            for got, want in zip(model(x, random.Random(seed)), expected[seed]):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)  # at most 9 dependent products with K=16
                assert got.stride() == want.stride()
            if n == 29:
                assert "a path that is new" in dycl.explain(model)
            made.append(dycl.stats(model)["plans"])
    assert made[129] - made[29] < 30, made  # a hundred new paths


def test_shapes_that_are_new_are_not_cut():
    torch.manual_seed(0)
    model = dycl.accelerate(nn.Sequential(*[nn.Linear(12, 12) for _ in range(6)]))
    with torch.no_grad():
        for rows in range(1, 40):
            model(torch.randn(rows, 12))
    assert "a path that is new" not in dycl.explain(model)


@pytest.mark.parametrize("keep", [False, True])
def test_every_trip_count(keep):
    torch.manual_seed(0)
    random.seed(0)
    model = Recurrent(keep).eval()
    with torch.no_grad():
        inputs = [torch.randn(random.randint(1, 70), 3, 12) for _ in range(120)]
        expected = [model(x) for x in inputs]
        dycl.accelerate(model)
        for x, wanted in zip(inputs, expected):
            for got, want in zip(model(x), wanted):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)  # 70 dependent steps of products with K=24
    assert dycl.stats(model)["torch"] == 0


def test_few_plans_for_many_counts():
    torch.manual_seed(0)
    random.seed(1)
    model = Refine()
    x = torch.randn(4, 33)
    counts = [random.randint(3, 150) for _ in range(300)]
    with torch.no_grad():
        expected = {n: model(x, n) for n in set(counts)}
        dycl.accelerate(model)
        before = dycl.stats(model)["plans"] if model(x, 1) else 0
        for n in counts:
            for got, want in zip(model(x, n), expected[n]):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
        made = dycl.stats(model)["plans"] - before
    assert len(set(counts)) > 100
    assert made < 25, made
    assert "trip count changes" in dycl.explain(model)


def test_weights_change_between_calls_of_different_length():
    """Packed weights of shared pieces follow the parameter."""
    torch.manual_seed(0)
    model = Recurrent(False).eval()
    with torch.no_grad():
        dycl.accelerate(model)
        for n in (9, 20, 31, 14, 27, 9, 33):
            x = torch.randn(n, 2, 12)
            model.first.weight_hh.mul_(0.9)
            with dycl.disable():
                want = model(x)
            for got, wanted in zip(model(x), want):
                torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_loop_that_asks_for_values():
    """A fetch in each iteration: iterations are segments already, with one plan."""

    def decay(x):
        n = 0
        while x.abs().max() > 0.1:
            x = x * 0.9 - 0.001 * torch.sin(x)
            n += 1
        return x, n

    fast = dycl.accelerate(decay)
    torch.manual_seed(0)
    with torch.no_grad():
        for scale in (1.0, 5.0, 0.3, 20.0, 3.0, 100.0):
            x = torch.randn(5, 7) * scale
            (got, n), (want, m) = fast(x), decay(x)
            assert n == m
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)
    assert dycl.stats(fast)["graph_vertices"] <= 4
