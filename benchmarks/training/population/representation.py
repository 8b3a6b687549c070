"""What is learnt without labels, from pairs, from a teacher, or in order to learn."""

import copy

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from .program import BATCHES, Running, images, program


def encoder(width=16, out=64):
    return nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
                         nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, out))


def seen(x):
    """Flipped, cut and noisy, as augmentations do."""
    if torch.rand(1).item() < 0.5:
        x = x.flip(-1)
    top, left = torch.randint(0, 5, (2,)).tolist()
    return x[:, :, top : top + 28, left : left + 28] * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1))


@program("SimCLR: two augmented views, NT-Xent, LARS-like rates by hand")
def simclr(accelerate):
    model = accelerate(nn.Sequential(encoder(), nn.ReLU(), nn.Linear(64, 32)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x, _):
        optimizer.zero_grad()
        z = F.normalize(torch.cat([model(seen(x)), model(seen(x))]), dim=1)
        alike = z @ z.t() / 0.5
        alike.fill_diagonal_(float("-inf"))
        loss = F.cross_entropy(alike, torch.arange(len(z)).roll(len(x)))
        loss.backward()
        for p in model.parameters():
            if p.dim() > 1:
                p.grad.mul_(torch.clamp(p.detach().norm() / (p.grad.norm() + 1e-6), max=2.0))
        optimizer.step()
        return loss.item()

    return Running(step, images(8, 32), model, optimizer)


@program("BYOL: a predictor, and a target that follows as an average")
def byol(accelerate):
    online = nn.Sequential(encoder(), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    target = copy.deepcopy(online).requires_grad_(False)
    online, target = accelerate(online), accelerate(target)
    predictor = accelerate(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)))
    optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=3e-4)

    def loss_of(a, b):
        return 2 - 2 * F.cosine_similarity(predictor(online(a)), target(b).detach(), dim=-1).mean()

    def step(x, _):
        a, b = seen(x), seen(x)
        optimizer.zero_grad()
        loss = loss_of(a, b) + loss_of(b, a)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for kept, p in zip(target.parameters(), online.parameters()):
                kept.data = 0.99 * kept.data + 0.01 * p.data
        return loss.item()

    return Running(step, images(8, 32), online, target, predictor, optimizer)


@program("metric learning: triplets of the hardest in a batch")
def triplet(accelerate):
    model = accelerate(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                                     nn.Linear(128, 32)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        z = F.normalize(model(x), dim=1)
        apart, same = torch.cdist(z, z), y[:, None] == y[None]
        farthest = torch.where(same, apart, torch.zeros_like(apart)).max(1).values
        nearest = apart.masked_fill(same, float("inf")).min(1).values
        loss = F.relu(farthest - nearest + 0.3).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(32, 64), torch.randint(6, (32,))) for _ in range(BATCHES)], model, optimizer)


@program("distillation: a frozen teacher in eval, soft and hard labels")
def distillation(accelerate):
    student, teacher = accelerate(encoder(8, 10)), accelerate(encoder(24, 10).eval())
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9)

    def step(x, y, heat=4.0):
        with torch.no_grad():
            soft = F.softmax(teacher(x) / heat, dim=1)
        optimizer.zero_grad()
        out = student(x)
        loss = F.kl_div(F.log_softmax(out / heat, dim=1), soft, reduction="batchmean") * heat**2
        loss = 0.7 * loss + 0.3 * F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, images(8, 32), student, optimizer)


class ArcFace(nn.Module):
    def __init__(self, inside, classes, scale=16.0, margin=0.3):
        super().__init__()
        self.weight, self.scale, self.margin = nn.Parameter(torch.randn(classes, inside)), scale, margin

    def forward(self, x, y):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight)).clamp(-1 + 1e-6, 1 - 1e-6)
        angle = torch.acos(cosine)
        hot = torch.zeros_like(cosine).scatter_(1, y.view(-1, 1), 1.0)
        return self.scale * torch.cos(angle + self.margin * hot)


@program("faces: an angular margin (ArcFace), two modules in one optimizer")
def arcface(accelerate):
    model, head = accelerate(encoder()), accelerate(ArcFace(64, 50))
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": head.parameters(), "lr": 0.1}], lr=0.01,
                                momentum=0.9, weight_decay=5e-4)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(model(x), y), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, images(8, 32, 50), model, head, optimizer)


@program("Barlow Twins: correlations of two views")
def barlow_twins(accelerate):
    model = accelerate(nn.Sequential(encoder(), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 48)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    norm = nn.BatchNorm1d(48, affine=False)

    def step(x, _):
        optimizer.zero_grad()
        c = norm(model(seen(x))).T @ norm(model(seen(x))) / len(x)
        on = torch.diagonal(c).add(-1).pow(2).sum()
        off = c.flatten()[:-1].view(len(c) - 1, len(c) + 1)[:, 1:].flatten().pow(2).sum()
        loss = on + 5e-3 * off
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, images(16, 32), model, optimizer, norm)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))

    def forward(self, x):
        return self.layers(x)


@program("MAML: inner steps through functional_call, gradients of gradients, 4 tasks a step")
def maml(accelerate):
    model = accelerate(Regressor())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(tasks):
        optimizer.zero_grad()
        total = 0.0
        for amplitude, phase in tasks:
            x = torch.rand(20, 1) * 10 - 5
            y = amplitude * torch.sin(x + phase)
            weights = dict(model.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(functional_call(model, weights, (x[:10],)), y[:10])
                found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), found)}
            total = total + F.mse_loss(functional_call(model, weights, (x[10:],)), y[10:])
        total.backward()
        optimizer.step()
        return total.item()

    return Running(step, [(torch.rand(4, 2) * 3 + 0.5,) for _ in range(BATCHES)], model, optimizer)
