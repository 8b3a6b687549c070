"""What a backward pass frees: those of first and second order go through the same nodes in eager, whoever made them.
Random orders of passes over small programs: gradients and errors are torch's."""

import random

import dycl
import pytest
import torch
import torch.nn.functional as F

PROGRAMS = {
    "tanh": lambda x: x.tanh().sum(), "exp": lambda x: x.exp().sum(), "products": lambda x: (x * x * x).sum(),
    "pow": lambda x: x.pow(3).sum(), "scaled": lambda x: (x * 2).tanh().sum(), "chain": lambda x: x.exp().tanh().sum(),
    "linear": lambda x: F.linear(x, torch.eye(2)).sigmoid().sum(), "square": lambda x: (x - 1).square().mean(),
    "branches": lambda x: x.exp().sum() + x.tanh().sum(), "outside": lambda x: (x * 3).sum() ** 2,
    "two operands": lambda x: (x.exp() * x.sin()).sum(), "softmax": lambda x: x.softmax(0).square().sum(),
    "norm": lambda x: F.layer_norm(x, (2,)).square().sum(),
}  # fmt: skip


def passes(function, x, steps):
    log = []
    y = function(x)
    beside, gradient = y * y, None
    for step in steps:
        try:
            if step == "make":
                gradient, = torch.autograd.grad(y, x, create_graph=True)
            elif step == "through":
                (gradient * gradient).sum().backward()
            elif step == "through, keeping":
                (gradient * gradient).sum().backward(retain_graph=True)
            elif step == "third order":
                (gradient * 2).sum().backward(create_graph=True)
            elif step == "asked":
                log.append(torch.autograd.grad((gradient * gradient * gradient).sum(), x, retain_graph=True)[0])
            elif step == "both":  # in one pass, which meets a node twice
                ((gradient * gradient).sum() + y).backward()
            elif step == "back":
                y.backward()
            elif step == "back, keeping":
                y.backward(retain_graph=True)
            else:
                beside.backward()
        except RuntimeError as error:
            log.append(str(error))
        log.append(None if x.grad is None else x.grad.detach().clone())
    return log


STEPS = ["make", "through", "through, keeping", "third order", "asked", "both", "back", "back, keeping", "beside"]


def same(want, got):
    if isinstance(want, torch.Tensor):
        return isinstance(got, torch.Tensor) and torch.allclose(want, got, rtol=1e-4, atol=1e-5)
    return want == got


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:Using backward")
def test_orders_of_passes(name):
    draw, program = random.Random(name), PROGRAMS[name]
    whole, part = dycl.accelerate(passes), dycl.accelerate(lambda x: program(x))
    for _ in range(20):
        steps = ["make"] + [draw.choice(STEPS) for _ in range(draw.randint(2, 5))]
        want = passes(program, torch.tensor([0.3, -0.7], requires_grad=True), steps)
        for got in (whole(program, torch.tensor([0.3, -0.7], requires_grad=True), steps),
                    passes(part, torch.tensor([0.3, -0.7], requires_grad=True), steps)):
            assert all(map(same, want, got)), (steps, want, got)
