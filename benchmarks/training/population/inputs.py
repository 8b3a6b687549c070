"""Training that asks for gradients of what a network is fed: attacks, smoothness, forces, second derivatives."""

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, images, program


def classifier():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                         nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                         nn.Linear(128, 10))


@program("adversarial training: three steps of PGD to each of the network, SGD with momentum")
def adversarial(accelerate):
    model = accelerate(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def attacked(x, y):
        away = torch.empty_like(x).uniform_(-0.03, 0.03)
        for _ in range(3):
            away.requires_grad_(True)
            slope, = torch.autograd.grad(F.cross_entropy(model(x + away), y), away)
            away = (away.detach() + 0.01 * slope.sign()).clamp(-0.03, 0.03)
        return x + away

    def step(x, y):
        x = attacked(x, y)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, images(16, 32), model, optimizer)


@program("double backpropagation: the slope of the loss in the image is a part of the loss")
def smooth_classifier(accelerate):
    model = accelerate(nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.SiLU(), nn.AvgPool2d(2),
                                     nn.Conv2d(16, 32, 3, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                     nn.Linear(128, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        x.requires_grad_(True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        slope, = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + 0.1 * slope.flatten(1).square().sum(1).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, images(16, 16), model, optimizer)


class Energy(nn.Module):
    """Of atoms, by their distances."""

    def __init__(self, width=64):
        super().__init__()
        self.register_buffer("centers", torch.linspace(0, 4, 16))
        self.pairs = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.atoms = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, places):
        apart = places.unsqueeze(-2) - places.unsqueeze(-3)
        distance = (apart.square().sum(-1) + 1e-3).sqrt()
        known = torch.exp(-4 * (distance.unsqueeze(-1) - self.centers) ** 2)
        return self.atoms(self.pairs(known).sum(-2)).sum((-2, -1))


@program("force field: energies and their slopes in the places of atoms are learned")
def force_field(accelerate):
    model = accelerate(Energy())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(places, energy, force):
        places.requires_grad_(True)
        optimizer.zero_grad()
        found = model(places)
        slope, = torch.autograd.grad(found.sum(), places, create_graph=True)
        loss = F.mse_loss(found, energy) + 10 * F.mse_loss(-slope, force)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.rand(8, 12, 3) * 3, torch.randn(8), torch.randn(8, 12, 3)) for _ in range(BATCHES)],
                   model, optimizer)


@program("heat equation: first and second derivatives of a SiLU network at many points")
def heat_equation(accelerate):
    model = accelerate(nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64),
                                     nn.SiLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(points):
        points.requires_grad_(True)
        optimizer.zero_grad()
        u = model(points)
        first, = torch.autograd.grad(u.sum(), points, create_graph=True)
        bent = sum(torch.autograd.grad(first[:, k].sum(), points, create_graph=True)[0][:, k] for k in (0, 1))
        loss = (first[:, 2] - 0.1 * bent).square().mean() + (u[:64] - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.rand(512, 3),) for _ in range(BATCHES)], model, optimizer)
