"""What only the backward pass reads stays in channels last, as convolutions leave it (csrc/py/region/laid.c): nothing
is copied between the passes, and what a program sees lies as eager's."""

import copy
import random
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import FULL, one_thread  # noqa: F401 (a fixture)

PROGRAMS = 60 if FULL else 16


class Block(nn.Module):
    """A residual block whose parts are drawn by a seed."""

    def __init__(self, rng, channels, out):
        super().__init__()
        self.first = nn.Conv2d(channels, out, rng.choice([1, 3]), padding="same", bias=rng.random() < 0.5)
        self.second = nn.Conv2d(out, out, 3, padding=1, groups=rng.choice([1, 1, 2, out]), stride=rng.choice([1, 1, 2]))
        self.norms = nn.ModuleList(rng.choice([nn.BatchNorm2d(out), nn.BatchNorm2d(out), nn.GroupNorm(2, out),
                                               nn.Identity()]) for _ in range(2))
        self.act = rng.choice([F.relu, F.relu, F.gelu, F.silu, lambda x: F.leaky_relu(x, 0.1)])
        self.pool = rng.choice([None, None, lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2, ceil_mode=True)])
        self.gate = rng.random() < 0.3
        self.drop = rng.random() < 0.3

    def forward(self, x):
        y = self.act(self.norms[0](self.first(x)))
        z = self.norms[1](self.second(y))
        if z.shape == y.shape:
            z = z + y
        z = self.act(z)
        if self.gate:
            z = z * torch.sigmoid(z.mean((2, 3), keepdim=True))
        if self.drop:
            z = F.dropout2d(z, 0.2, self.training)
        return self.pool(z) if self.pool and min(z.shape[2:]) > 2 else z


class Net(nn.Module):
    def __init__(self, seed):
        super().__init__()
        rng = random.Random(seed)
        widths = [rng.choice([3, 8])] + [rng.choice([6, 8, 16, 20]) for _ in range(rng.randint(1, 4))]
        self.blocks = nn.ModuleList(Block(rng, a, b) for a, b in zip(widths, widths[1:]))
        self.shows = rng.choice([None, None, 0])  # a block whose result the program sees
        self.head = nn.Linear(widths[-1], 5)
        self.sizes = rng.randint(1, 4), widths[0], rng.randint(6, 17), rng.randint(6, 17)

    def forward(self, x):
        shown = []
        for n, block in enumerate(self.blocks):
            x = block(x)
            if n == self.shows:
                shown.append(x)
        return self.head(x.mean((2, 3))), shown


def pair(seed):
    torch.manual_seed(seed)
    eager = Net(seed)
    return eager, dycl.accelerate(copy.deepcopy(eager))


def run(model, seed, step, back):
    """Results and gradients of one pass."""
    torch.manual_seed(seed * 100 + step)
    x = torch.randn(model.sizes, requires_grad=step % 2 == 0)
    out, shown = model(x)
    back(out, shown, model, x)
    grads = [p.grad for p in model.parameters()] + [x.grad]
    for p in model.parameters():
        p.grad = None
    return [out, *shown, *grads]


def strides(t):
    """A dimension of one element has none: sums of gradients through the same operators may say another."""
    return [stride for size, stride in zip(t.shape, t.stride()) if size > 1]


def check(mine, theirs):
    """Sums that cancel (a bias in front of a norm) are as exact as what they are made of."""
    assert len(mine) == len(theirs)
    scale = max(1.0, *(float(t.detach().abs().max()) for t in theirs if t is not None))
    for a, b in zip(mine, theirs):
        assert (a is None) == (b is None)
        if a is not None:
            assert strides(a) == strides(b)
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5 * scale)


def plainly(out, shown, model, x):
    (out.square().sum() + sum(s.mean() for s in shown)).backward()


def twice(out, shown, model, x):
    loss = out.square().sum()
    loss.backward(retain_graph=True)
    loss.backward()


def penalty(out, shown, model, x):
    """Its gradients are differentiated: what was kept is what torch goes back from."""
    grads = torch.autograd.grad(out.sum(), [p for p in model.parameters() if p.requires_grad], create_graph=True,
                                allow_unused=True)
    (out.mean() + sum(g.square().sum() for g in grads if g is not None)).backward()


@pytest.mark.parametrize("back", [plainly, twice, penalty])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_networks(seed, back):
    eager, mine = pair(seed)
    for step in range(4):  # recorded, planned, tuned
        check(run(mine, seed, step, back), run(eager, seed, step, back))
        for a, b in zip(mine.buffers(), eager.buffers()):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def steps_of(text, word):
    """Steps of tuned plans, by kernel."""
    return [line for line in text.split("\n") if re.match(rf"\s+\d+ {word} ", line)]


def test_nothing_is_copied_between_the_passes():
    torch.manual_seed(0)
    model = dycl.accelerate(nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten()))
    for _ in range(4):
        model(torch.randn(2, 8, 16, 16)).sum().backward()
    text = dycl.explain(model)
    assert len(steps_of(text, "copy")) == 1, text  # the batch itself


def test_what_the_program_holds_lies_as_eagers():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    seen = []
    model[1].register_forward_hook(lambda m, args, out: seen.append(out))
    mine = dycl.accelerate(copy.deepcopy(model))
    x = torch.randn(2, 3, 12, 12)
    for net in (model, mine, model, mine):
        net(x).square().sum().backward()
    assert len({s.stride() for s in seen}) == 1
    for a, b in zip(mine.parameters(), model.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_views_of_what_is_kept():
    """Read and held, differentiated twice."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 8, 3, padding=1)

        def forward(self, x):
            y = self.conv(x)
            left, right = y.chunk(2, 1)
            top = y.square().narrow(2, 1, 4)
            out = left * torch.sigmoid(right) + y.flatten(2).softmax(-1).view_as(y)[:, :4]
            return out, top, torch.exp(top * top.detach()).mean() * out.mean()

    eager = Model()
    mine = dycl.accelerate(copy.deepcopy(eager))
    for step in range(6):
        x = torch.randn(2, 4, 6 + step % 2, 6)
        results = []
        for model in (mine, eager):
            out, top, score = model(x)
            if step % 2:
                slope, = torch.autograd.grad(score, top, create_graph=True, retain_graph=True)
                score = score + slope.square().sum() + (top * 3).sin().sum()
            (out.square().sum() + score).backward()
            results.append([out, top, *(p.grad for p in model.parameters())])
            model.zero_grad()
        check(*results)


def test_layouts_that_change():
    """One model, batches in both formats, with and without gradients."""
    eager = nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU())
    mine = dycl.accelerate(copy.deepcopy(eager))
    for step in range(9):
        x = torch.randn(2, 6, 9, 9)
        x = x.to(memory_format=torch.channels_last) if step % 3 == 1 else x
        results = []
        for model in (mine, eager):
            with torch.set_grad_enabled(step % 4 != 3):
                out = model(x)
            if step % 4 != 3:
                out.square().sum().backward()
            results.append([out, *(p.grad for p in model.parameters())])
            model.zero_grad()
        check(*results)
