"""Equations, fields and implicit layers: derivatives inside of losses, solvers inside of models."""

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, program, supervised


class Sine(nn.Module):
    def __init__(self, inside, outside, first=False):
        super().__init__()
        self.linear = nn.Linear(inside, outside)
        bound = 1 / inside if first else (6 / inside) ** 0.5 / 30
        self.linear.weight.data.uniform_(-bound, bound)

    def forward(self, x):
        return torch.sin(30 * self.linear(x))


@program("SIREN: an image as a function, all pixels a step", 1e-4)
def siren(accelerate):
    model = accelerate(nn.Sequential(Sine(2, 64, True), Sine(64, 64), Sine(64, 64), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    line = torch.linspace(-1, 1, 32)
    places, image = torch.cartesian_prod(line, line), torch.rand(1024, 1)
    return Running(supervised(model, optimizer, F.mse_loss), [(places, image)], model, optimizer)


class Radiance(nn.Module):
    def __init__(self, width=64, bands=4):
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(bands))
        self.body = nn.Sequential(nn.Linear(3 + 6 * bands, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.density, self.colour = nn.Linear(width, 1), nn.Sequential(nn.Linear(width + 3, 32), nn.ReLU(),
                                                                       nn.Linear(32, 3), nn.Sigmoid())

    def forward(self, points, directions):
        angles = (points[..., None] * self.bands).flatten(-2)
        h = self.body(torch.cat([points, angles.sin(), angles.cos()], -1))
        return F.softplus(self.density(h)).squeeze(-1), self.colour(torch.cat([h, directions], -1))


def rendered(model, origins, directions, steps=16):
    t = torch.linspace(0.5, 2.5, steps).expand(len(origins), steps)
    t = t + torch.rand_like(t) * 2 / steps
    points = origins[:, None] + t[..., None] * directions[:, None]
    density, colour = model(points, directions[:, None].expand_as(points))
    apart = torch.cat([t[:, 1:] - t[:, :-1], torch.full((len(t), 1), 1e3)], 1)
    alpha = 1 - torch.exp(-density * apart)
    through = torch.cumprod(torch.cat([torch.ones(len(t), 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    return ((alpha * through)[..., None] * colour).sum(1)


@program("NeRF: rays, encoded positions, a cumulated product, an exponential schedule", 1e-4)
def nerf(accelerate):
    model = accelerate(Radiance())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)

    def step(origins, directions, colours):
        optimizer.zero_grad()
        loss = F.mse_loss(rendered(model, origins, directions), colours)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.item()

    batches = [(torch.randn(64, 3) * 0.1, F.normalize(torch.randn(64, 3), dim=-1), torch.rand(64, 3))
               for _ in range(BATCHES)]
    return Running(step, batches, model, optimizer, scheduler)


class Derivative(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def forward(self, t, y):
        return self.net(y**3)


class ODE(nn.Module):
    """Steps of Runge and Kutta in Python."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, y, times):
        found = [y]
        for a, b in zip(times[:-1], times[1:]):
            h = b - a
            k1 = self.of(a, y)
            k2 = self.of(a + h / 2, y + h / 2 * k1)
            k3 = self.of(a + h / 2, y + h / 2 * k2)
            k4 = self.of(b, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            found.append(y)
        return torch.stack(found)


@program("neural ODE, RK4 over ten steps, RMSprop")
def neural_ode(accelerate):
    model = accelerate(ODE(Derivative()))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    times = torch.linspace(0, 0.5, 11)

    def step(y, truth):
        optimizer.zero_grad()
        loss = torch.mean(torch.abs(model(y, times) - truth))
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(20, 2), torch.randn(11, 20, 2)) for _ in range(BATCHES)], model, optimizer)


def tanh_net(inside, outside, width=32, layers=3):
    sizes = [inside] + [width] * layers
    return nn.Sequential(*[m for i, o in zip(sizes, sizes[1:]) for m in (nn.Linear(i, o), nn.Tanh())],
                         nn.Linear(width, outside))


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


@program("PINN: Burgers' equation, second derivatives through autograd.grad", 2e-4)
def pinn(accelerate):
    model = accelerate(tanh_net(2, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, t, x0):
        x.requires_grad_(True)
        t.requires_grad_(True)
        optimizer.zero_grad()
        u = model(torch.cat([x, t], 1))
        u_x, u_t = derivative(u, x), derivative(u, t)
        residual = u_t + u * u_x - 0.01 / torch.pi * derivative(u_x, x)
        start = model(torch.cat([x0, torch.zeros_like(x0)], 1)) + torch.sin(torch.pi * x0)
        loss = residual.pow(2).mean() + start.pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.rand(128, 1) * 2 - 1, torch.rand(128, 1), torch.rand(32, 1) * 2 - 1)
                          for _ in range(BATCHES)], model, optimizer)


@program("PINN of Poisson's equation with L-BFGS and a closure", 1e-2)
def pinn_lbfgs(accelerate):
    model = accelerate(tanh_net(1, 1, 24, 2))
    x = torch.linspace(0, 1, 64).view(-1, 1).requires_grad_(True)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)
    force = (torch.pi**2 * torch.sin(torch.pi * x)).detach()

    def step():
        def closure():
            optimizer.zero_grad()
            u = model(x)
            loss = (derivative(derivative(u, x), x) + force).pow(2).mean() + 10 * (u[0] ** 2 + u[-1] ** 2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    return Running(step, [()], model, optimizer)


class Hamiltonian(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = tanh_net(4, 1, 64, 2)

    def forward(self, x):
        x = x.detach().requires_grad_(True)
        slope, = torch.autograd.grad(self.net(x).sum(), x, create_graph=True)
        q, p = slope.chunk(2, -1)
        return torch.cat([p, -q], -1)


@program("Hamiltonian network: its forward is a gradient", 2e-4)
def hamiltonian(accelerate):
    model = accelerate(Hamiltonian())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    return Running(supervised(model, optimizer, F.mse_loss),
                   [(torch.randn(64, 4), torch.randn(64, 4)) for _ in range(BATCHES)], model, optimizer)


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


@program("deep equilibrium: iterates until .item() says that it stands still", 1e-4)
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
        self.write = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 6 * width + 1))

    def forward(self, task, x):
        flat, found, begin = self.write(self.tasks(task)), [], 0
        for shape in self.shapes:
            size = torch.Size(shape).numel()
            found.append(flat[begin : begin + size].view(shape))
            begin += size
        w1, b1, w2, b2 = found
        return F.linear(torch.relu(F.linear(x, w1, b1)), w2, b2)


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


class Spectral(nn.Module):
    """The lowest frequencies are mixed by complex weights (Li et al., 2021)."""

    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width**2)
        self.beside = nn.Conv1d(width, width, 1)

    def forward(self, x):
        found = torch.fft.rfft(x)
        out = torch.zeros_like(found)
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", found[:, :, : self.modes], self.weight)
        return F.gelu(torch.fft.irfft(out, n=x.size(-1)) + self.beside(x))


class FNO(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.lift, self.layers = nn.Linear(2, width), nn.Sequential(*[Spectral(width, 8) for _ in range(3)])
        self.head = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.head(self.layers(self.lift(x).transpose(1, 2)).transpose(1, 2))


@program("Fourier neural operator: complex weights, relative L2 loss")
def fourier_operator(accelerate):
    model = accelerate(FNO())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)

    def relative(found, y):
        return ((found - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)).mean()

    return Running(supervised(model, optimizer, relative),
                   [(torch.randn(8, 64, 2), torch.randn(8, 64, 1)) for _ in range(BATCHES)], model, optimizer)


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


@program("optimal transport: Sinkhorn's iterations in the loss", 1e-4)
def sinkhorn(accelerate):
    model = accelerate(Sinkhorn())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(40, 8), torch.randn(40, 4)) for _ in range(BATCHES)], model, optimizer)


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


@program("Gaussian process with a deep kernel, Cholesky, Rprop", 2e-4)
def gaussian_process(accelerate):
    model = accelerate(GaussianProcess())
    optimizer = torch.optim.Rprop(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(48, 6), torch.randn(48)) for _ in range(BATCHES)], model, optimizer)
