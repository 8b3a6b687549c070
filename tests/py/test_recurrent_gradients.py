"""Layers of nn.RNN, nn.LSTM and nn.GRU that train: results, gradients, names, strides, versions, and what dropout
draws, as eager's, for configurations drawn at random."""

import copy
import random

import dycl
import pytest
import torch
from torch import nn

KINDS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


class Network(nn.Module):
    """Both results are read, and leave the call, too."""

    def __init__(self, draw, kind):
        super().__init__()
        self.kind, self.batch_first, self.both = kind, draw.random() < 0.5, draw.random() < 0.5
        self.inputs, self.width, self.layers = draw.randint(1, 20), draw.choice([1, 5, 16, 33, 70]), draw.randint(1, 3)
        settings = {"bias": draw.random() < 0.7, "dropout": draw.choice([0.0, 0.3]) if self.layers > 1 else 0.0}
        if kind == "RNN":
            settings["nonlinearity"] = draw.choice(["tanh", "relu"])
        directions = 1 + self.both
        self.recurrent = KINDS[kind](self.inputs, self.width, self.layers, batch_first=self.batch_first,
                                     bidirectional=self.both, **settings)
        self.out = nn.Linear(self.width * directions, 3)
        self.state = (self.layers * directions, self.width)
        self.reads = draw.sample(["states", "last", "cell"], draw.randint(1, 3))

    def forward(self, x, state):
        states, last = self.recurrent(x, state)
        lasts = last if self.kind == "LSTM" else (last,)
        parts = {"states": self.out(states).square(), "last": lasts[0] * 2, "cell": lasts[-1].sin()}
        return sum(parts[name].mean() for name in self.reads), states, *lasts

    def arguments(self, draw):
        steps, batch = draw.randint(1, 9), draw.randint(1, 7)
        x = torch.randn(batch, steps, self.inputs) if self.batch_first else torch.randn(steps, batch, self.inputs)
        state = torch.randn(self.state[0], batch, self.state[1]) if draw.random() < 0.7 else None
        return x, state, (draw.random() < 0.6, draw.random() < 0.6)


def one_step(network, x, state, wants, create_graph):
    """Everything that a program can see of it, in two lists: tensors of numbers, and the rest."""
    x, tensors = x.clone().requires_grad_(wants[0]), []
    hidden = None if state is None else state.clone().requires_grad_(wants[1])
    loss, *results = network(x, (hidden, hidden * 0.5) if network.kind == "LSTM" and hidden is not None else hidden)
    looks = [(r.grad_fn.name(), r.stride(), r._version, r.is_contiguous()) for r in (loss, *results)]
    leaves = [t for t in (x, hidden, *network.parameters()) if t is not None and t.requires_grad]
    gradients = torch.autograd.grad(loss, leaves, create_graph=create_graph, allow_unused=True)
    looks += [None if g is None else (g.stride(), g.requires_grad) for g in gradients]
    tensors += [loss, *results, *(g for g in gradients if g is not None)]
    if create_graph:
        penalty = sum(g.square().sum() for g in gradients if g is not None)
        second = torch.autograd.grad(penalty, leaves, allow_unused=True)
        looks += [g is None for g in second]
        tensors += [g for g in second if g is not None]
    return [t.detach() for t in tensors], looks


def compare(draw, kind, create_graph=False):
    eager = Network(draw, kind)
    ours = dycl.accelerate(copy.deepcopy(eager))
    for p, q in zip(eager.parameters(), ours.parameters()):
        frozen = draw.random() < 0.15
        p.requires_grad_(not frozen), q.requires_grad_(not frozen)
    if not any(p.requires_grad for p in eager.recurrent.parameters()):
        eager.recurrent.requires_grad_(), ours.recurrent.requires_grad_()
    for call in range(3):
        arguments = eager.arguments(draw)
        outcomes = []
        for network in (eager, ours):
            torch.manual_seed(call)
            outcomes.append((*one_step(network, *arguments, create_graph), torch.get_rng_state()))
        (want, want_looks, want_state), (got, got_looks, got_state) = outcomes
        assert want_looks == got_looks, (eager, arguments[0].shape, want_looks, got_looks)
        assert torch.equal(want_state, got_state)
        for a, b in zip(want, got, strict=True):  # 1e-4: sums of up to 63 steps' products, in another order
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    return ours


@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind):
    draw = random.Random(len(kind) + 1)
    for _ in range(20):
        stats = dycl.stats(compare(draw, kind))
        assert stats["torch"] == 0 and stats["replays"] == 0, stats


@pytest.mark.parametrize("kind", KINDS)
def test_second_gradients(kind):
    draw = random.Random(len(kind) + 2)
    for _ in range(6):
        compare(draw, kind, create_graph=True)


def in_any_layout(draw, t):
    """The same numbers, transposed, in steps, in the middle of something larger, or as they are."""
    kind = draw.randrange(4)
    if kind == 0 and t.dim() > 1:
        return t.mT.contiguous().mT
    if kind == 1:
        return torch.stack([t, t * 2], -1)[..., 0]
    return torch.cat([t * 3, t, t], 0)[t.shape[0]:2 * t.shape[0]] if kind == 2 else t


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("kind", ["rnn_tanh", "rnn_relu", "gru", "lstm"])
def test_operands_in_any_layout(kind, learns):
    draw, function = random.Random(kind), getattr(torch, kind)
    gates = {"gru": 3, "lstm": 4}.get(kind, 1)

    def program(x, states, weights, layers, biases):
        state = tuple(states) if kind == "lstm" else states[0]
        return [r.sin() for r in function(x, state, weights, biases, layers, 0.0, False, False, False)]

    ours = dycl.accelerate(program)
    for _ in range(25):
        width, inputs, batch, layers, biases = draw.randint(2, 9), draw.randint(2, 7), draw.randint(1, 4), draw.randint(
            1, 2), draw.random() < 0.8
        shapes = [s for k in range(layers) for s in [(gates * width, width if k else inputs), (gates * width, width)] +
                  [(gates * width,)] * (2 * biases)]
        operands = [in_any_layout(draw, torch.randn(shape) * 0.5) for shape in [
            (draw.randint(2, 5), batch, inputs), *[(layers, batch, width)] * 2, *shapes]]
        outcomes = []
        for run in (program, ours):
            leaves = [t.detach().requires_grad_(learns) for t in operands]
            results = run(leaves[0], leaves[1:3], leaves[3:], layers, biases)
            gradients = torch.autograd.grad(sum(r.sum() for r in results), leaves, allow_unused=True) if learns else []
            outcomes.append([*results, *(g for g in gradients if g is not None)])
        for want, got in zip(*outcomes, strict=True):
            assert want.stride() == got.stride()
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_layer_keeps_nothing(kind):
    torch.manual_seed(0)
    layer, out = KINDS[kind](3, 4).requires_grad_(False), nn.Linear(4, 2)
    f = dycl.accelerate(lambda x: out(layer(x)[0]).sum())
    x = torch.randn(5, 2, 3)
    for _ in range(3):
        f(x).backward()
    assert "recurrent_back" not in dycl.explain(f)
    want = torch.autograd.grad(out(layer(x)[0]).sum(), out.weight)[0]
    torch.testing.assert_close(out.weight.grad / 3, want)


def test_a_state_written_in_between_is_an_error():
    layer = nn.GRU(3, 4)
    x, state = torch.randn(5, 2, 3), torch.randn(1, 2, 4)

    def step(run):
        kept = state.clone()
        loss = run(x, kept)
        kept.zero_()
        loss.backward()

    for run in (lambda x, h: layer(x, h)[0].sum(), dycl.accelerate(lambda x, h: layer(x, h)[0].sum())):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            step(run)


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_wide_layers(kind):
    """They are asked with few steps, but not of weights that are smaller: torch reads behind the end of these."""
    layer = KINDS[kind](2, 130, bidirectional=True, batch_first=True)
    ours, x = dycl.accelerate(lambda x: layer(x)), torch.randn(3, 70, 2)
    (want, want_last), (got, got_last) = layer(x), ours(x)
    lasts = [(want_last, got_last)] if torch.is_tensor(want_last) else list(zip(want_last, got_last))
    for a, b in ((want, got), *lasts):
        assert a.grad_fn.name() == b.grad_fn.name()
