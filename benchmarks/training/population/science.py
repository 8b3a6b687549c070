"""Equations and fields: derivatives inside of losses and models, steps of solvers, spectra."""

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


@program("SIREN: an image as a function, all pixels a step")
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


@program("NeRF: rays, encoded positions, a cumulated product, an exponential schedule")
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


@program("PINN: Burgers' equation, second derivatives through autograd.grad")
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


@program("PINN of Poisson's equation with L-BFGS and a closure")
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


@program("Hamiltonian network: its forward is a gradient")
def hamiltonian(accelerate):
    model = accelerate(Hamiltonian())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    return Running(supervised(model, optimizer, F.mse_loss),
                   [(torch.randn(64, 4), torch.randn(64, 4)) for _ in range(BATCHES)], model, optimizer)


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
