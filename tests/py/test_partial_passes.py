"""Backward passes that are asked for some tensors only (torch.autograd.grad, backward(inputs=...)): gradients and
errors are torch's, and nothing else is computed."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import one_thread  # noqa: F401 (a fixture)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 3))


def pair():
    return net(), dycl.accelerate(net())


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert (x is None) == (y is None)
        if x is not None:
            assert x.stride() == y.stride() and torch.allclose(x, y, rtol=1e-5, atol=1e-7)


def goals(model):
    """To how many tensors each backward graph led."""
    return sorted(int(n) for n in re.findall(r"\n  from \d+ tensors? \(.*?\) to (\d+) tensors?", dycl.explain(model)))


def test_only_what_is_asked_for_is_computed():
    _, model = pair()
    x = torch.randn(4, 6, requires_grad=True)
    for _ in range(3):
        torch.autograd.grad(model(x).sum(), x)
    assert goals(model) == [1]
    torch.autograd.grad(model(x).sum(), list(model.parameters())[2:4])
    assert goals(model) == [1, 2]
    model(x).sum().backward(inputs=[x, model[0].weight])
    assert goals(model) == [1, 2, 2]
    model(x).sum().backward()
    assert goals(model) == [1, 2, 2, 7]


def subsets(model, x):
    names = [x, *model.parameters()]
    for seed in range(24):
        torch.manual_seed(seed)
        yield [t for t in names if torch.rand(()) < 0.4] or [names[seed % len(names)]]


def test_random_subsets():
    eager, model = pair()
    x = torch.randn(4, 6, requires_grad=True)
    for wanted, ours in zip(subsets(eager, x), subsets(model, x)):
        for _ in range(2):
            same(torch.autograd.grad(eager(x).square().sum(), wanted),
                 torch.autograd.grad(model(x).square().sum(), ours))


def test_backward_leaves_the_others_alone():
    for model in pair():
        x = torch.randn(4, 6, requires_grad=True)
        model(x).sum().backward(inputs=[model[2].weight, x])
        assert [n for n, p in model.named_parameters() if p.grad is not None] == ["2.weight"] and x.grad is not None


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def test_nodes_of_other_kinds_behind_a_source():
    """Results of other calls, of a function of the program's, and of torch: what is asked for lies behind them."""
    seen = []
    for wrap in (lambda f: f, dycl.accelerate):
        torch.manual_seed(1)
        first, second = wrap(nn.Linear(6, 6)), wrap(net())
        x, y, z = (torch.randn(4, 6, requires_grad=True) for _ in range(3))
        run = wrap(lambda a, b, c: second(a) * second(b).tanh() + c.sum())
        for wanted in ([x], [y], [z], [x, z], [first.weight], [second[0].weight, y]):
            for _ in range(2):
                h = first(x)
                out = run(h, Doubles.apply(y), z.exp())
                seen.append(torch.autograd.grad(out.sum(), wanted))
                seen.append(torch.autograd.grad(run(h := first(x), y, z).sum(), [h, y]))
    half = len(seen) // 2
    for a, b in zip(seen[:half], seen[half:]):
        same(a, b)


@pytest.mark.parametrize("unused", [False, True])
def test_what_is_not_behind(unused):
    said = []
    for model in pair():
        torch.manual_seed(2)
        x, other = torch.randn(4, 6, requires_grad=True), torch.ones(2, requires_grad=True)
        try:
            found = torch.autograd.grad(model(x).sum(), [other, x], allow_unused=unused)
            said.append([g is None for g in found])
        except RuntimeError as error:
            said.append(str(error))
    assert said[0] == said[1]


def test_hooks_see_only_what_is_on_the_way():
    seen = []
    for model in pair():
        x, calls = torch.randn(4, 6, requires_grad=True), []
        for name, p in model.named_parameters():
            p.register_hook(lambda g, name=name: calls.append(name))
        for wanted in ([x], [model[0].bias, model[4].weight]):
            torch.autograd.grad(model(x).sum(), wanted)
            calls.append("grad")
            model(x).sum().backward(inputs=wanted)
            calls.append("backward")
        seen.append(calls)
    assert seen[0] == seen[1] and "0.bias" in seen[0] and "2.weight" not in seen[0]


def test_a_pass_within_a_pass():
    """A hook that asks for another gradient: each pass has its own goal."""
    seen = []
    for model in pair():
        torch.manual_seed(2)
        x, found = torch.randn(4, 6, requires_grad=True), []

        @x.register_hook
        @torch.enable_grad()
        def hook(gradient, model=model, x=x, found=found):
            found.extend(torch.autograd.grad(model(x).square().sum(), model[0].weight))

        for _ in range(2):
            found += torch.autograd.grad(model(x).sum(), [x, model[4].bias])
        seen.append(found)
    assert len(seen[0]) == 6
    same(*seen)


def test_an_attack_does_not_touch_parameters():
    found = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                   nn.Linear(64, 5)))
        x, y, delta = torch.rand(2, 3, 8, 8), torch.tensor([1, 3]), torch.zeros(2, 3, 8, 8)
        for _ in range(4):
            delta.requires_grad_()
            step, = torch.autograd.grad(F.cross_entropy(model(x + delta), y), delta)
            found.append(step)
            delta = (delta.detach() + 0.1 * step).clamp(-0.2, 0.2)
        assert all(p.grad is None for p in model.parameters())
    same(found[:4], found[4:])
