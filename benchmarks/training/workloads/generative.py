"""Models that make images, as in torch's examples: DCGAN, with two optimizers, and VAE, which draws random numbers."""

import torch
from torch import nn
from torch.nn import functional as F

from ..workload import BATCHES, Task, Training


def initial(module):
    """DCGAN's (Radford et al., 2016)."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def generator(noise=64, width=32):
    return nn.Sequential(
        nn.ConvTranspose2d(noise, 4 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU(True),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator(width=32):
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2 * width, 4 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(4 * width),
        nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(4 * width, 1, 4, 1, 0, bias=False), nn.Flatten(0), nn.Sigmoid())


def adversarial(generator, discriminator, of_generator, of_discriminator, real, noise):
    ones, zeros = torch.ones(len(real)), torch.zeros(len(real))
    discriminator.zero_grad()
    on_real = F.binary_cross_entropy(discriminator(real), ones)
    on_real.backward()
    fake = generator(noise)
    on_fake = F.binary_cross_entropy(discriminator(fake.detach()), zeros)
    on_fake.backward()
    of_discriminator.step()
    generator.zero_grad()
    fooled = F.binary_cross_entropy(discriminator(fake), ones)
    fooled.backward()
    of_generator.step()
    return (on_real + on_fake).item(), fooled.item()


def adam(parameters, **form):
    return torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999), **form)


def dcgan():
    batches = [(torch.rand(16, 3, 32, 32) * 2 - 1, torch.randn(16, 64, 1, 1)) for _ in range(BATCHES)]
    return Task([generator().apply(initial), discriminator().apply(initial)], adversarial, batches, adam)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.mean, self.deviation = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.outside, self.image = nn.Linear(20, 400), nn.Linear(400, 784)

    def forward(self, x):
        h = F.relu(self.inside(x.view(-1, 784)))
        mean, logvar = self.mean(h), self.deviation(h)
        deviation = torch.exp(0.5 * logvar)
        z = mean + torch.randn_like(deviation) * deviation
        return torch.sigmoid(self.image(F.relu(self.outside(z)))), mean, logvar


def variational(model, optimizer, x):
    optimizer.zero_grad()
    made, mean, logvar = model(x)
    apart = F.binary_cross_entropy(made, x.view(-1, 784), reduction="sum")
    loss = apart - 0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    loss.backward()
    optimizer.step()
    return loss.item()


def vae():
    return Task([VAE()], variational, [(torch.rand(128, 1, 28, 28),) for _ in range(BATCHES)])


WORKLOADS = [
    Training("dcgan", "DCGAN, 16x3x32x32, two optimizers", dcgan),
    Training("vae", "VAE 784-400-20, batch 128, random numbers", vae),
]
