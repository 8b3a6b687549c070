"""Random paths through random blocks, each call another one: what is cut into parts is what eager computes."""

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import FULL

WIDTH, HEADS = 24, 3
CALLS = 60 if FULL else 30


def check_near(got, want, exact):
    """Products of 24 terms, thirteen blocks of them and a norm after each: what that makes of roundings is seen in what
    eager's differ from float64's. Another order of the same sums may be as far off, some times."""
    bound = 1e-4 * (1 + exact.abs().max()) + 4 * (want - exact).abs().max()
    assert (got - exact).abs().max() <= bound, (got, want, exact)
    assert got.stride() == want.stride() and got.dtype == want.dtype


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).view(x.shape[0], 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(x.shape))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4).eval()

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x.view(-1, 2, 3, 4))))
        return x + F.max_pool2d(y, 3, 1, 1).view(len(x), 2, WIDTH).mean(1)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)

    def forward(self, x):
        h, c = self.cell(x)
        return h + self.cell(x, (h, c))[1]


class Written(nn.Module):
    """Writes into what it computed, and into a view of it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = self.linear(x)
        y[:, 2:5] += x[:, :3]
        y[0] *= 0.5
        return y.clamp_(-2, 2)


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        a, b = self.up(x).chunk(2, -1)
        return self.down(torch.sigmoid(a) * b).flip(0)


class Gram(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.mT, -1) @ x


class Wide(nn.Module):
    """More lives across its products than a cut may carry."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        wide = x[:, None, :, None] * torch.linspace(0, 1, 40)[:, None, None] + self.linear.bias.detach() * 0
        return self.linear(x) + self.linear(wide.sum(3)).amax(1)


class Branches(nn.Module):
    """`draw` takes a way at each step; some ask for a value, some end early, some read what an earlier step made."""

    def __init__(self, draw):
        super().__init__()
        kinds = Attention, Convolution, Cell, Written, Split, Gram, Wide, lambda: nn.Linear(WIDTH, WIDTH), nn.Tanh
        self.blocks = nn.ModuleList([draw.choice(kinds)() for _ in range(draw.randint(2, 6))])
        self.norm = nn.LayerNorm(WIDTH)
        self.steps = draw.randint(4, 12)

    def forward(self, x, draw):
        states = [x]
        for _ in range(self.steps):
            way = draw.random()
            x = self.norm(draw.choice(self.blocks)(x) + (draw.choice(states) if way < 0.4 else 0))
            if 0.4 < way < 0.45 and x[0, 0].item() > 0:
                x = -x
            elif 0.45 < way < 0.5:
                break
            elif way > 0.9:
                x = x.double().abs().to(x.dtype)
            states.append(x)
        return x, draw.choice(states), torch.stack(states[-2:]).mean((0, 2))


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("program", range(100 if FULL else 10))
def test_random_paths(program, trains):
    draw = random.Random(program)
    torch.manual_seed(program)
    eager = Branches(draw).eval()
    exact, model = copy.deepcopy(eager).double(), dycl.accelerate(copy.deepcopy(eager))
    for call in range(CALLS):
        seed = draw.randrange(10**6) if call % 5 else program  # every fifth takes the same path
        x = torch.randn(5 if call % 7 else 6, WIDTH)
        seen = []
        for m in (model, eager, exact):
            leaf = x.to(next(m.parameters()).dtype, copy=True).requires_grad_(trains)
            with torch.set_grad_enabled(trains):
                results = m(leaf, random.Random(seed))
            differentiable = [t.requires_grad for t in results]
            if trains:
                sum(t.square().sum() for t in results).backward()
            seen.append([differentiable, *results, *(p.grad for p in (leaf, *m.parameters()))])
            m.zero_grad()
        for got, want, truth in zip(*seen):
            if not isinstance(want, torch.Tensor):
                assert got == want
            else:
                check_near(got, want, truth)
    assert dycl.stats(model)["calls"] == CALLS
