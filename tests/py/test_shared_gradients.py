"""Weights that several products share: their gradients are one product of stacked matrices, or a sum of
products where stacking would cost more."""

import copy
import itertools
import random
import re
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from test_class_gradients import compare
from test_environment import start
from test_gradients import agree
import dycl
from suite import one_thread  # noqa: F401 (a fixture)

# How one step uses the weight [n, n] and the bias [n].
USES = {
    "linear": lambda h, w, b: F.linear(h, w, b),
    "linear without bias": lambda h, w, b: F.linear(h, w) + b,
    "product": lambda h, w, b: h @ w + b,
    "transposed": lambda h, w, b: h @ w.t(),
    "addmm": lambda h, w, b: torch.addmm(b, h.flatten(0, -2), w).view(h.shape),
    "rows": lambda h, w, b: torch.cat([F.linear(h, w[:3], b[:3]), F.linear(h, w[3:])], -1),
    "columns": lambda h, w, b: F.linear(h[..., 1:], w[:, 1:], b),
    "computed": lambda h, w, b: F.linear(h, w.tanh(), b.exp()),
    "elements too": lambda h, w, b: F.linear(h, w, b) * w[0] + b,
    "the other side": lambda h, w, b: (w @ h.transpose(-1, -2)).transpose(-1, -2) + b,
    "no weight": lambda h, w, b: F.linear(h, w.detach(), b),
    "no bias": lambda h, w, b: F.linear(h, w, b.detach()),
    "one number": lambda h, w, b: F.linear(h, w) + b[0],
}


def loop(uses, rows):
    """Steps of random kinds and sizes through one weight."""
    def program(x, w, b):
        total = w.mean()
        for number, (use, count) in enumerate(zip(uses, rows)):
            h = x[..., :count, :] * (number + 1)
            total = total + torch.tanh(USES[use](h, w, b)).square().mean()
        return total
    return program


@pytest.mark.parametrize("seed", range(60))
def test_random_loops(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    n, steps, most = rng.choice([4, 5, 16]), rng.choice([2, 3, 7, 20]), rng.choice([1, 2, 8, 64])
    uses = [rng.choice(list(USES)) for _ in range(steps)] if seed % 2 else [rng.choice(list(USES))] * steps
    rows = [rng.randint(1, most) for _ in range(steps)]
    dtype = rng.choice([torch.float32, torch.float64])
    shape = rng.choice([(most, n), (3, most, n)])
    w, b = torch.randn(n, n, dtype=dtype) / n ** 0.5, torch.randn(n, dtype=dtype)
    compare(loop(uses, rows), [torch.randn(shape, dtype=dtype).requires_grad_(rng.random() < 0.5),
                               w.requires_grad_(), b.requires_grad_(rng.random() < 0.8)])


@pytest.mark.parametrize("steps", [63, 64, 65, 130])
def test_more_products_than_a_concatenation_takes(steps):
    def program(x, w, b):
        h = x
        for _ in range(steps):
            h = torch.tanh(F.linear(h, w, b))
        return h.sum()

    compare(program, [torch.randn(2, 8), (torch.randn(8, 8) / 3).requires_grad_(), torch.randn(8, requires_grad=True)])


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("frozen", [(), ("weight_hh",), ("bias_ih", "weight_ih")])
def test_recurrent_cells(kind, frozen):
    torch.manual_seed(3)
    models = [kind(6, 8) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for m in models:
        for name in frozen:
            getattr(m, name).requires_grad_(False)

    def through(cell):
        def program(x):
            state = None
            for step in x:
                state = cell(step, state)
            return (state[0] if isinstance(state, tuple) else state).square().sum()
        return program

    runs = [through(models[0]), dycl.accelerate(through(models[1]))]
    for call in range(4):
        x = torch.randn(5 + call % 2, 3, 6)
        for run in runs:
            run(x).backward()
    for (name, want), got in zip(models[0].named_parameters(), models[1].parameters()):
        assert agree(want.grad, got.grad), name


def graphs_of(rows):
    """What is computed in a forward and a backward pass through four products of so many rows."""
    out = start(textwrap.dedent(f"""
        import torch, torch.nn.functional as F, dycl
        x, w, b = torch.randn(4, {rows}, 8), torch.randn(8, 8, requires_grad=True), torch.randn(8, requires_grad=True)
        run = dycl.accelerate(lambda x: sum(F.linear(h, w, b).tanh().sum() for h in x.unbind(0)))
        run(x).backward()
        run(x)  # what a backward pass logs is shown behind the next call
        """), DYCL_CHOOSE="0", DYCL_LOG="graph")
    return out.stderr.split("as recorded:")[1:3]


@pytest.mark.parametrize("rows,products,sums", [(1, 1, 1), (5, 1, 1), (6, 4, 4)])
def test_one_product_where_stacking_costs_less(rows, products, sums):
    """2 * rows * (8 + 8) against 3 * 8 * 8 elements that are read and written."""
    forward, backward = graphs_of(rows)
    assert len(re.findall(r"= linear\b", forward)) == 4
    assert len(re.findall(r"= (?:linear|matmul)\b", backward)) == products, backward
    assert len(re.findall(r"= sum\b", backward)) == sums, backward


@pytest.mark.parametrize("layouts", list(itertools.product(["rows", "columns"], repeat=2)))
@pytest.mark.parametrize("kind", ["linear", "with bias", "product", "by its transpose", "of more dimensions"])
def test_gradients_lie_as_torchs(kind, layouts):
    """torch's gradient of a matrix that lies in columns lies in columns; `torch.autograd.grad` shows it."""
    program = {
        "linear": lambda x, w: F.linear(x, w),
        "with bias": lambda x, w: F.linear(x, w, w[0].detach()),
        "product": lambda x, w: x @ w,
        "by its transpose": lambda x, w: x @ w.mT,
        "of more dimensions": lambda x, w: F.linear(x.unflatten(0, (2, 2)), w),
    }[kind]

    def laid(layout):
        return (torch.randn(4, 4) if layout == "rows" else torch.randn(4, 4).t()).requires_grad_()

    def gradients(x, w):
        return torch.autograd.grad(program(x, w).sin().sum(), [x, w])

    leaves = [laid(layout) for layout in layouts]
    for want, got in zip(gradients(*leaves), dycl.accelerate(gradients)(*leaves)):
        assert want.stride() == got.stride() and agree(want, got)


class Tied(nn.Module):
    """A language model: its last layer has the weights of its first, and the program holds what lies between as a view
    (transformers' last_hidden_state)."""

    def __init__(self, view):
        super().__init__()
        self.words, self.inner, self.view = nn.Embedding(11, 6), nn.Linear(6, 6), view

    def forward(self, words):
        hidden = self.view(torch.tanh(self.inner(self.words(words))))
        return hidden, F.linear(hidden, self.words.weight).sin()


VIEWS = {
    "same": lambda t: t.view(t.shape), "rows": lambda t: t.view(-1, 6), "part": lambda t: t[:, -2:],
    "twice": lambda t: t.view(t.shape)[:, slice(0, None), :], "turned": lambda t: t.transpose(0, 1),
}


@pytest.mark.parametrize("second", (False, True))
@pytest.mark.parametrize("name", VIEWS)
def test_the_first_layer_shares_the_last_ones_weights(name, second):
    torch.manual_seed(0)
    model = Tied(VIEWS[name])
    words = torch.randint(0, 11, (2, 5))
    run = dycl.accelerate(copy.deepcopy(model))

    def outcome(model):
        hidden, logits = model(words)
        weights = list(model.parameters())
        once = torch.autograd.grad(logits.pow(2).sum(), [*weights, hidden], create_graph=second)
        if second:
            once += torch.autograd.grad(sum(g.sin().sum() for g in once), weights)
        return [hidden, logits, *once]

    want = outcome(model)
    for _ in range(3):
        for a, b in zip(want, outcome(run), strict=True):
            assert agree(a, b)
    assert dycl.stats(run)["replays"] == 0, dycl.explain(run)
