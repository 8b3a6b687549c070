"""Gradients that are differentiated themselves, from the second pass of a kind on: recorded as a call of their own
(csrc/py/entry/second.h), with values, errors, names and identities as torch's."""

import copy
import gc
import random
import re
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import FULL, one_thread  # noqa: F401 (a fixture)

STEPS = 4


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


ACTIVATIONS = [nn.Tanh, nn.Sigmoid, Sine, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU,
               lambda: nn.GELU("tanh"), nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardtanh,
               nn.Hardshrink, nn.LogSigmoid, nn.Tanhshrink, lambda: nn.Threshold(0.1, 0.2),
               lambda: nn.Softmax(-1), lambda: nn.LogSoftmax(-1)]


def layers(activation):
    return nn.Sequential(nn.Linear(3, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, 2))


def critic(activation=nn.LeakyReLU, pool=nn.AvgPool2d):
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), activation(), pool(2), nn.Conv2d(4, 4, 3, stride=2, padding=1),
                         activation(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 1))


def learned(program, model, x, dtype):
    """Losses and gradients of some steps; they come with what explain says."""
    model, found = model.to(dtype), []
    for _ in range(STEPS):
        model.zero_grad()
        leaf = x.detach().to(dtype, copy=True).requires_grad_()
        loss = program(model, leaf)
        loss.backward()
        found += [loss.detach(), leaf.grad, *(p.grad for p in model.parameters())]
    return found


def agree(found, want, truth):
    """As far from the truth as eager, or as rounding."""
    assert len(found) == len(want) == len(truth)
    for f, w, t in zip(found, want, truth):
        assert (f is None) == (w is None)
        if f is not None:
            room = 1e-5 * t.abs().max() + 1e-7 + 4 * (w.double() - t).abs().max()
            off, eagers = ((x.double() - t).abs().max() for x in (f, w))
            assert off <= room, f"{tuple(f.shape)}: {off:.2e} of {t.abs().max():.2e}, eager {eagers:.2e}"


def recorded(model):
    return sum(map(int, re.findall(r"(\d+) times recorded, as gradients", dycl.explain(model))))


def in_torch(model):
    found = re.search(r"(\d+) of these operator by operator in torch", dycl.explain(model))
    return int(found[1]) if found else 0


def check(make, program, x, kinds=1):
    """kinds: of passes of a step that make gradients for others; each runs once in torch, which names the nodes."""
    def made():
        torch.manual_seed(0)
        return make()

    want, truth = learned(program, made(), x, torch.float32), learned(program, made(), x, torch.float64)
    model = dycl.accelerate(made())
    agree(learned(program, model, x, torch.float32), want, truth)
    before = in_torch(model), recorded(model)
    agree(learned(program, model, x, torch.float32), want, truth)
    assert (in_torch(model), recorded(model)) == (before[0], before[1] + STEPS * kinds), dycl.explain(model)
    agree(learned(program, dycl.accelerate(made()), x, torch.float64), truth, truth)


def penalty(model, x):
    y = model(x)
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y.mean() + g.square().sum()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation):
    torch.manual_seed(1)
    check(lambda: layers(activation), penalty, torch.randn(5, 3))


@pytest.mark.parametrize("pool", [nn.AvgPool2d, nn.MaxPool2d])
def test_images(pool):
    torch.manual_seed(1)
    check(lambda: critic(pool=pool), penalty, torch.randn(3, 2, 8, 8))


def weights_penalty(model, x):
    loss = model(x).square().mean()
    return loss + sum(g.square().sum() for g in torch.autograd.grad(loss, list(model.parameters()), create_graph=True))


@pytest.mark.parametrize("make, size", [(lambda: layers(nn.Tanh), (5, 3)), (critic, (3, 2, 8, 8)),
                                        (lambda: critic(nn.ReLU, nn.MaxPool2d), (3, 2, 9, 9))])
def test_gradients_of_weights(make, size):
    torch.manual_seed(1)
    check(make, weights_penalty, torch.randn(size))


def drawn(seed):
    """A net of a few layers on images of 4 channels, and what it is fed."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    parts, width = [], 4
    for _ in range(rng.choice([2, 3, 4])):
        out = rng.choice([4, 6])
        parts.append(rng.choice([
            lambda: nn.Conv2d(width, out, 3, padding=1), lambda: nn.Conv2d(width, out, 3, stride=2, padding=1),
            lambda: nn.Conv2d(width, out, 3, padding=2, dilation=2), lambda: nn.Conv2d(width, out, 1),
            lambda: nn.Conv2d(width, out, 3, padding=1, groups=2),
            lambda: nn.Conv2d(width, out, (1, 3), padding=(0, 1)),
            lambda: nn.ConvTranspose2d(width, out, 2, stride=2), lambda: nn.ConvTranspose2d(width, out, 3, padding=1),
            lambda: nn.Sequential(nn.Conv2d(width, out, 3, padding=1), nn.GroupNorm(2, out)),
            lambda: nn.Sequential(nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out).eval())])())
        width = out
        parts.append(rng.choice([nn.Tanh, nn.LeakyReLU, nn.SiLU, nn.GELU, nn.Softplus, nn.Identity, nn.ELU])())
        if rng.random() < 0.4:
            parts.append(rng.choice([nn.AvgPool2d(2, padding=1), nn.MaxPool2d(2, ceil_mode=True),
                                     nn.AdaptiveAvgPool2d((3, 2)), nn.Upsample(scale_factor=2), nn.Softmax2d()]))
    size = (rng.choice([1, 3]), 4, rng.choice([6, 9]), rng.choice([6, 8]))
    x = torch.randn(size).contiguous(memory_format=rng.choice([torch.contiguous_format, torch.channels_last]))
    return nn.Sequential(*parts), x, rng.choice([penalty, weights_penalty])


@pytest.mark.parametrize("seed", range(600 if FULL else 60))
def test_random_images(seed):
    model, x, program = drawn(seed)
    want, truth = (learned(program, copy.deepcopy(model), x, dtype) for dtype in (torch.float32, torch.float64))
    agree(learned(program, dycl.accelerate(model), x, torch.float32), want, truth)


def laplace(model, x):
    y = model(x)
    first, = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    second, = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
    return (second[:, 0] + y[:, 0] * first[:, 1]).square().mean()


@pytest.mark.parametrize("activation", [nn.Tanh, Sine, nn.SiLU, nn.GELU, nn.Softplus])
def test_third_derivatives(activation):
    """Of a loss of second derivatives."""
    torch.manual_seed(1)
    x = torch.linspace(-1, 1, 15).view(5, 3)

    def made():
        torch.manual_seed(0)
        return layers(activation)

    want, truth = (learned(laplace, made(), x, dtype) for dtype in (torch.float32, torch.float64))
    model = dycl.accelerate(made())
    agree(learned(laplace, model, x, torch.float32), want, truth)
    before = in_torch(model), recorded(model)
    agree(learned(laplace, model, x, torch.float32), want, truth)
    assert in_torch(model) == before[0] and recorded(model) > before[1]


def test_learned_slopes_stay_in_torch():
    """prelu's gradients are one function of torch's: zeros come to the weight where nothing else does."""
    torch.manual_seed(0)
    model, x = dycl.accelerate(layers(nn.PReLU)), torch.randn(5, 3, requires_grad=True)
    torch.manual_seed(0)
    eager = layers(nn.PReLU)
    for _ in range(STEPS):
        for m in (eager, model):
            m.zero_grad()
            penalty(m, x).backward()
        assert all(torch.allclose(a.grad, b.grad, rtol=1e-5, atol=1e-7)
                   for a, b in zip(eager.parameters(), model.parameters()))
    assert in_torch(model) == STEPS


def looks(t):
    return None if t is None else (t.shape, t.requires_grad, t.is_leaf, t.grad_fn and type(t.grad_fn).__name__,
                                   t.output_nr, t._version)


@pytest.mark.parametrize("make, size", [(lambda: layers(nn.Tanh), (5, 3)), (lambda: layers(nn.SiLU), (5, 3)),
                                        (critic, (3, 2, 8, 8))])
def test_nodes_are_called_as_torch_calls_them(make, size):
    model, seen = dycl.accelerate(make()), []
    for _ in range(STEPS):
        x = torch.randn(size, requires_grad=True)
        found = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()], create_graph=True)
        seen.append([looks(g) for g in found])
    assert recorded(model) >= STEPS - 1 and all(s == seen[0] for s in seen)


def test_what_comes_through_unchanged_is_the_same_tensor():
    run = dycl.accelerate(lambda a, b: a + b * 2)
    for _ in range(STEPS):
        a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        came = torch.ones(3, requires_grad=True)
        first, second = torch.autograd.grad(run(a, b), [a, b], came, create_graph=True)
        assert first is came and torch.equal(second, 2 * came) and second.requires_grad


def error_of(function):
    try:
        function()
    except RuntimeError as error:
        return re.sub(r", which is output 0 of \w+,", "", str(error))  # a view in torch, a value of ours
    return None


def test_writes_between_are_torchs_errors():
    seen = []
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(0)
        model, said = wrap(layers(nn.Tanh)), []
        for step in range(STEPS):
            x = torch.randn(5, 3, requires_grad=True)
            g, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            if step % 2:
                with torch.no_grad():
                    model[2].weight.mul_(1.5)
            said.append(error_of(g.square().sum().backward))
        seen.append(said)
    assert seen[0] == seen[1] and seen[0][1] and not seen[0][2], seen


def test_passes_free_what_torch_frees():
    """Two branches of one call: what a pass through one of them frees does not hinder one through the other."""
    seen = []
    for wrap in (lambda f: f, dycl.accelerate):
        run, said = wrap(lambda a, b: torch.tanh(a * 2).sum() + torch.sigmoid(b * 2).sum()), []
        for _ in range(STEPS):
            a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
            first, second = torch.autograd.grad(run(a, b), [a, b], create_graph=True)
            for g in (first, second, first, second):
                said.append(error_of(lambda g=g: g.sum().backward()))
            said.append((a.grad.tolist(), b.grad.tolist()))
        seen.append(said)
    assert seen[0] == seen[1]


def test_gradients_may_be_written():
    for wrap in (lambda m: m, dycl.accelerate):
        torch.manual_seed(0)
        model = wrap(layers(nn.Tanh))
        for _ in range(STEPS):
            x = torch.ones(5, 3, requires_grad=True)
            g, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            g.mul_(2)
            assert g._version == 1
            g.sum().backward()
        if wrap is not dycl.accelerate:
            want = x.grad
    assert torch.allclose(x.grad, want, rtol=1e-5, atol=1e-7)


def test_numbers_of_the_program_may_change():
    run = dycl.accelerate(lambda x, k: torch.tanh(x * k))
    for k in (0.5, 1.5, 2.5, -1.0):
        found = []
        for function in (run, lambda x, k: torch.tanh(x * k)):
            x = torch.linspace(-1, 1, 5, requires_grad=True)
            g, = torch.autograd.grad(function(x, k).sum(), x, create_graph=True)
            found += [g.detach(), *torch.autograd.grad(g.sum(), x)]
        assert torch.allclose(found[0], found[2], rtol=1e-5) and torch.allclose(found[1], found[3], rtol=1e-5)


def test_under_anomaly_detection_and_in_a_call():
    """Where torch has to see each operator, and within the call of another model, torch runs it."""
    torch.manual_seed(0)
    eager, model = layers(nn.Tanh), dycl.accelerate(layers(nn.Tanh))
    model.load_state_dict(eager.state_dict())
    outer = dycl.accelerate(lambda x: penalty(model, x))
    x = torch.randn(5, 3, requires_grad=True)
    want = torch.autograd.grad(penalty(eager, x), x)[0]
    for _ in range(STEPS):
        with torch.autograd.set_detect_anomaly(True):
            assert torch.allclose(torch.autograd.grad(penalty(model, x), x)[0], want, rtol=1e-5, atol=1e-6)
        assert torch.allclose(torch.autograd.grad(outer(x), x)[0], want, rtol=1e-5, atol=1e-6)
        assert torch.allclose(torch.autograd.grad(penalty(model, x), x)[0], want, rtol=1e-5, atol=1e-6)


def test_batches_of_gradients():
    torch.manual_seed(0)
    model, x = dycl.accelerate(layers(nn.Tanh)), torch.randn(2, 3, requires_grad=True)
    eager = layers(nn.Tanh)
    eager.load_state_dict(model.state_dict())
    for _ in range(STEPS):
        found = [torch.autograd.grad(m(x).flatten(), x, torch.eye(4).view(4, 4), create_graph=True,
                                     is_grads_batched=True)[0] for m in (eager, model)]
        assert torch.allclose(*found, rtol=1e-5, atol=1e-7)
        again = [torch.autograd.grad(f.square().sum(), x)[0] for f in found]
        assert torch.allclose(*again, rtol=1e-5, atol=1e-7)


def test_threads():
    torch.manual_seed(0)
    eager, model, found = layers(nn.Tanh), dycl.accelerate(layers(nn.Tanh)), {}
    model.load_state_dict(eager.state_dict())

    def work(seed):
        torch.manual_seed(seed)
        x = torch.linspace(-1, seed, 15).view(5, 3).requires_grad_()
        found[seed] = [torch.autograd.grad(penalty(m, x), x)[0] for m in (eager, model) for _ in range(8)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2, 6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(found) == 4 and all(torch.allclose(g, f[0], rtol=1e-4, atol=1e-6) for f in found.values() for g in f)


def test_its_memory_is_let_go():
    model = dycl.accelerate(layers(nn.Tanh))
    alive = []
    for _ in range(STEPS):
        x = torch.randn(5, 3, requires_grad=True)
        y = model(x)
        g, = torch.autograd.grad(y.sum(), x, create_graph=True)
        alive += [weakref.ref(x), weakref.ref(g)]
        assert y.grad_fn.shown
        (g.square().sum() + y.sum()).backward()
        assert not y.grad_fn.shown, "what it saved went with the pass"
    del x, y, g
    gc.collect()
    assert not any(r() is not None for r in alive)
