"""Layers that are solved for, or written by another network: iterations inside of a forward, linear algebra."""

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, program, supervised


class Equilibrium(nn.Module):
    """A fixed point is sought without gradients, until it stands still; one more step has them."""

    def __init__(self, width=64):
        super().__init__()
        self.inside, self.around, self.norm = nn.Linear(32, width), nn.Linear(width, width), nn.LayerNorm(width)
        self.head, self.steps = nn.Linear(width, 5), 0
        self.around.weight.data.mul_(0.3)

    def cell(self, z, x):
        return torch.tanh(self.norm(self.around(z) + x))

    def forward(self, x):
        x = self.inside(x)
        z = torch.zeros_like(x)
        with torch.no_grad():
            for self.steps in range(12):
                following = self.cell(z, x)
                if (following - z).norm().item() < 1e-3:
                    break
                z = following
        return self.head(self.cell(z, x))


@program("deep equilibrium: iterates until .item() says that it stands still")
def equilibrium(accelerate):
    model = accelerate(Equilibrium())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Running(supervised(model, optimizer, F.cross_entropy),
                   [(torch.randn(32, 32), torch.randint(5, (32,))) for _ in range(BATCHES)], model, optimizer)


class Hopfield(nn.Module):
    def __init__(self, patterns=24, width=48):
        super().__init__()
        self.patterns, self.query = nn.Parameter(torch.randn(patterns, width)), nn.Linear(width, width)
        self.beta = nn.Parameter(torch.tensor(0.2))

    def forward(self, x):
        state = self.query(x)
        for _ in range(5):
            state = F.softmax(self.beta * state @ self.patterns.T, -1) @ self.patterns
        return state


@program("modern Hopfield network: patterns from noisy parts")
def hopfield(accelerate):
    model = accelerate(Hopfield())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = (1 - F.cosine_similarity(model(x * (torch.rand_like(x) < 0.7)), x)).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(64, 48),) for _ in range(BATCHES)], model, optimizer)


class HyperNetwork(nn.Module):
    """Writes the weights of another network for each task."""

    def __init__(self, tasks=8, width=16):
        super().__init__()
        self.tasks, self.shapes = nn.Embedding(tasks, 8), [(width, 4), (width,), (1, width), (1,)]
        self.write = nn.Sequential(nn.Linear(8, 48), nn.SiLU(), nn.Linear(48, 6 * width + 1))

    def forward(self, task, x):
        flat, found, begin = self.write(self.tasks(task)), [], 0
        for shape in self.shapes:
            size = torch.Size(shape).numel()
            found.append(flat[begin : begin + size].view(shape))
            begin += size
        w1, b1, w2, b2 = found
        return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)


@program("hypernetwork: weights of four small networks a step")
def hypernetwork(accelerate):
    model = accelerate(HyperNetwork())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(tasks, x, y):
        optimizer.zero_grad()
        loss = sum(F.mse_loss(model(task, x[i]), y[i]) for i, task in enumerate(tasks))
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randint(8, (4,)), torch.randn(4, 32, 4), torch.randn(4, 32, 1))
                          for _ in range(BATCHES)], model, optimizer)


class Sinkhorn(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 4))

    def forward(self, x, y):
        cost = torch.cdist(self.net(x), y).pow(2)
        u, v = torch.zeros(len(x)), torch.zeros(len(y))
        for _ in range(15):
            u = -torch.logsumexp(v[None] - cost / 0.5, 1)
            v = -torch.logsumexp(u[:, None] - cost / 0.5, 0)
        plan = torch.exp(u[:, None] + v[None] - cost / 0.5) / len(x)
        return (plan * cost).sum()


@program("optimal transport: Sinkhorn's iterations in the loss")
def sinkhorn(accelerate):
    model = accelerate(Sinkhorn())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    batches = [(torch.randn(40, 8), torch.randn(40, 4)) for _ in range(BATCHES)]
    return Running(supervised(model, optimizer), batches, model, optimizer)


class GaussianProcess(nn.Module):
    """A deep kernel and its marginal likelihood, by a Cholesky factor."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
        self.length, self.noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(-1.0))

    def forward(self, x, y):
        z = self.net(x) / self.length.exp()
        kernel = torch.exp(-0.5 * (z[:, None] - z[None]).pow(2).sum(-1)) + self.noise.exp() * torch.eye(len(x))
        factor = torch.linalg.cholesky(kernel)
        solved = torch.cholesky_solve(y[:, None], factor)
        return (0.5 * (y[:, None] * solved).sum() + factor.diagonal().log().sum()) / len(x)


@program("Gaussian process with a deep kernel, Cholesky, Rprop")
def gaussian_process(accelerate):
    model = accelerate(GaussianProcess())
    optimizer = torch.optim.Rprop(model.parameters(), lr=1e-3)

    batches = [(torch.randn(48, 6), torch.randn(48)) for _ in range(BATCHES)]
    return Running(supervised(model, optimizer), batches, model, optimizer)
