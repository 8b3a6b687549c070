"""Models that make data: autoencoders, flows, diffusion, adversaries, energies."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from .program import BATCHES, Running, program


def pictures(count, channels=1, size=16):
    return [(torch.rand(count, channels, size, size),) for _ in range(BATCHES)]


class VQVAE(nn.Module):
    def __init__(self, width=32, codes=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1))
        self.codes = nn.Embedding(codes, width)
        self.codes.weight.data.uniform_(-1 / codes, 1 / codes)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(width, 1, 4, 2, 1))

    def forward(self, x):
        z = self.encoder(x)
        rows = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        near = torch.cdist(rows, self.codes.weight).argmin(1)
        q = self.codes(near).view(len(x), *z.shape[2:], -1).permute(0, 3, 1, 2)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return self.decoder(z + (q - z).detach()), loss, near


@program("VQ-VAE: nearest codes, gradients that go straight through, how many codes are used")
def vqvae(accelerate):
    model = accelerate(VQVAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
    used = []

    def step(x):
        optimizer.zero_grad()
        made, loss, near = model(x)
        loss = loss + F.mse_loss(made, x) / 0.06
        loss.backward()
        optimizer.step()
        used[:] = [len(near.unique())]
        return loss.item()

    return Running(step, pictures(8), model, optimizer)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(128, 256), nn.Linear(256, 128, bias=False)

    def forward(self, x):
        code = torch.relu(self.encoder(x))
        return self.decoder(code), code


@program("sparse autoencoder: L1 on the code, columns of the decoder are made unit vectors")
def sparse_autoencoder(accelerate):
    model = accelerate(Sparse())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        made, code = model(x)
        loss = F.mse_loss(made, x) + 1e-3 * code.abs().sum(1).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.decoder.weight.div_(model.decoder.weight.norm(dim=0, keepdim=True))
        return loss.item()

    return Running(step, [(torch.randn(64, 128),) for _ in range(BATCHES)], model, optimizer)


def critic(width=16, wrap=lambda layer: layer):
    return nn.Sequential(wrap(nn.Conv2d(1, width, 4, 2, 1)), nn.LeakyReLU(0.2),
                         wrap(nn.Conv2d(width, 2 * width, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(),
                         wrap(nn.Linear(32 * width, 1)))


def maker(noise=32, width=16):
    return nn.Sequential(nn.Linear(noise, 32 * width), nn.Unflatten(1, (2 * width, 4, 4)), nn.ReLU(),
                         nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(),
                         nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Sigmoid())


@program("WGAN-GP: two steps of the critic with a gradient penalty for each of the generator")
def wgan_gp(accelerate):
    generator, discriminator = accelerate(maker()), accelerate(critic())
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    of_critic = torch.optim.Adam(discriminator.parameters(), lr=1e-4, betas=(0.0, 0.9))

    def penalty(real, fake):
        share = torch.rand(len(real), 1, 1, 1)
        between = (share * real + (1 - share) * fake).requires_grad_(True)
        gradient, = torch.autograd.grad(discriminator(between).sum(), between, create_graph=True)
        return ((gradient.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

    def step(real):
        for _ in range(2):
            of_critic.zero_grad()
            fake = generator(torch.randn(len(real), 32)).detach()
            loss = discriminator(fake).mean() - discriminator(real).mean() + 10 * penalty(real, fake)
            loss.backward()
            of_critic.step()
        of_generator.zero_grad()
        (-discriminator(generator(torch.randn(len(real), 32))).mean()).backward()
        of_generator.step()
        return loss.item()

    return Running(step, pictures(8), generator, discriminator, of_generator, of_critic)


@program("GAN with hinge losses, spectral norm, and an average of the generator's weights")
def hinge_gan(accelerate):
    generator, discriminator = accelerate(maker()), accelerate(critic(wrap=spectral_norm))
    average = AveragedModel(generator, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    of_critic = torch.optim.Adam(discriminator.parameters(), lr=4e-4, betas=(0.0, 0.9))

    def step(real):
        fake = generator(torch.randn(len(real), 32))
        of_critic.zero_grad()
        loss = F.relu(1 - discriminator(real)).mean() + F.relu(1 + discriminator(fake.detach())).mean()
        loss.backward()
        of_critic.step()
        of_generator.zero_grad()
        of_maker = 1 - discriminator(fake).mean()
        of_maker.backward()
        of_generator.step()
        average.update_parameters(generator)
        return loss.item(), of_maker.item()

    return Running(step, pictures(8), generator, discriminator, of_generator, of_critic, average)


class TimeBlock(nn.Module):
    def __init__(self, inside, outside, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.norm2, self.conv2 = nn.GroupNorm(4, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.around = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.around(x)


class Diffusion(nn.Module):
    def __init__(self, width=16, time=32):
        super().__init__()
        self.half, self.time = time // 2, nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.inside = nn.Conv2d(1, width, 3, padding=1)
        self.down1, self.shrink = TimeBlock(width, width, time), nn.Conv2d(width, width, 3, 2, 1)
        self.down2 = TimeBlock(width, 2 * width, time)
        self.attend = nn.MultiheadAttention(2 * width, 2, batch_first=True)
        self.up, self.out = TimeBlock(3 * width, width, time), nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None].float() * torch.exp(-math.log(10000) * torch.arange(self.half) / self.half)
        t = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        a = self.down1(self.inside(x), t)
        b = self.down2(self.shrink(a), t)
        rows = b.flatten(2).transpose(1, 2)
        b = b + self.attend(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(b.shape)
        return self.out(self.up(torch.cat([a, F.interpolate(b, scale_factor=2)], 1), t))


@program("diffusion: U-Net with attention and embedded times, an average of the weights by hand")
def diffusion(accelerate):
    model = accelerate(Diffusion())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    left = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    average = [p.detach().clone() for p in model.parameters()]

    def step(x):
        t, noise = torch.randint(1000, (len(x),)), torch.randn_like(x)
        share = left[t].view(-1, 1, 1, 1)
        optimizer.zero_grad()
        loss = F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for kept, p in zip(average, model.parameters()):
                kept.lerp_(p, 0.005)
        return loss.item()

    return Running(step, pictures(8), model, optimizer)


class Coupling(nn.Module):
    """RealNVP's."""

    def __init__(self, size, width, odd):
        super().__init__()
        self.register_buffer("mask", (torch.arange(size) % 2 == odd).float())
        self.scale = nn.Sequential(nn.Linear(size, width), nn.Tanh(), nn.Linear(width, size), nn.Tanh())
        self.shift = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, size))

    def forward(self, x):
        kept = x * self.mask
        scale, shift = self.scale(kept) * (1 - self.mask), self.shift(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * torch.exp(scale) + shift), scale.sum(-1)


class Flow(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(size, 48, i % 2) for i in range(6))
        self.register_buffer("zero", torch.zeros(size))
        self.register_buffer("one", torch.ones(size))

    def log_prob(self, x):
        total = 0
        for layer in self.layers:
            x, determinant = layer(x)
            total = total + determinant
        return torch.distributions.Normal(self.zero, self.one).log_prob(x).sum(-1) + total

    forward = log_prob


@program("normalising flow (RealNVP), likelihood by torch.distributions, Adamax")
def realnvp(accelerate):
    model = accelerate(Flow())
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = -model(x).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(64, 8) * 2 + 1,) for _ in range(BATCHES)], model, optimizer)


class Masked(nn.Conv2d):
    """PixelCNN's: the mask is put on the weight before each use."""

    def __init__(self, kind, *size, **options):
        super().__init__(*size, **options)
        self.register_buffer("mask", torch.ones_like(self.weight))
        _, _, h, w = self.weight.shape
        self.mask[:, :, h // 2, w // 2 + (kind == "B") :] = 0
        self.mask[:, :, h // 2 + 1 :] = 0

    def forward(self, x):
        self.weight.data *= self.mask
        return super().forward(x)


@program("PixelCNN: convolutions whose weights are masked through .data, 16 levels")
def pixelcnn(accelerate):
    layers = [Masked("A", 1, 24, 7, padding=3), nn.BatchNorm2d(24), nn.ReLU(True)]
    for _ in range(3):
        layers += [Masked("B", 24, 24, 5, padding=2), nn.BatchNorm2d(24), nn.ReLU(True)]
    model = accelerate(nn.Sequential(*layers, nn.Conv2d(24, 16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), (x[:, 0] * 15).long())
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, pictures(4), model, optimizer)


class Energy(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, width), nn.Softplus(), nn.Linear(width, width), nn.Softplus(),
                                    nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


@program("energy-based model: samples by Langevin steps through autograd.grad")
def energy_model(accelerate):
    model = accelerate(Energy())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def sample(count):
        x = torch.rand(count, 16)
        for _ in range(8):
            x.requires_grad_(True)
            gradient, = torch.autograd.grad(model(x).sum(), x)
            x = (x - 0.1 * gradient + 0.01 * torch.randn_like(x)).detach()
        return x

    def step(x):
        fake = sample(len(x))
        optimizer.zero_grad()
        real_energy, fake_energy = model(x), model(fake)
        loss = (real_energy - fake_energy).mean() + 0.1 * (real_energy**2 + fake_energy**2).mean() + 1
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randn(32, 16),) for _ in range(BATCHES)], model, optimizer)
