"""DCGAN (Radford et al., ICLR 2016): the generator of 64x64 images, and its training against a discriminator with two
optimizers."""

import torch
from torch import nn

NZ, NGF, NDF, NC = 100, 64, 64, 3
REAL, FAKE = 1.0, 0.0


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NZ, NGF * 8, 4, 1, 0, bias=False),
            nn.BatchNorm2d(NGF * 8),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF * 8, NGF * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NGF * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF * 4, NGF * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NGF * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF * 2, NGF, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NGF),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF, NC, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(NC, NDF, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF, NDF * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NDF * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF * 2, NDF * 4, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NDF * 4),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF * 4, NDF * 8, 4, 2, 1, bias=False),
            nn.BatchNorm2d(NDF * 8),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF * 8, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).view(-1, 1).squeeze(1)


class DCGAN(nn.Module):
    """Both networks. Called with noise it answers the images that the generator makes and what the discriminator thinks
    of them."""

    def __init__(self):
        super().__init__()
        self.netG = Generator()
        self.netD = Discriminator()
        self.apply(weights_init)

    def forward(self, z):
        fake = self.netG(z)
        return fake, self.netD(fake)


def build():
    return DCGAN()


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.rand(4, NC, 64, 64, generator=generator) * 2 - 1


@torch.no_grad()
def infer(model, batch):
    """Samples, the best of which is shown: the grid of a figure, as numbers from 0 to 1."""
    model.eval()
    noise = torch.randn(batch.size(0), NZ, 1, 1)
    fake, belief = model(noise)
    best = int(belief.argmax())
    grid = torch.cat(list(fake), dim=2)
    low, high = grid.min().item(), grid.max().item()
    grid = grid.clamp_(min=low, max=high).sub_(low).div_(max(high - low, 1e-5))
    return grid, best, belief


def optimizer(model):
    return [torch.optim.Adam(net.parameters(), lr=0.0002, betas=(0.5, 0.999)) for net in (model.netD, model.netG)]


def train(model, optim, batch):
    netD, netG = model.netD, model.netG
    optimizerD, optimizerG = optim
    criterion = nn.BCELoss()
    model.train()

    # (1) D: maximize log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    label = torch.full((batch.size(0),), REAL)
    output = netD(batch)
    errD_real = criterion(output, label)
    errD_real.backward()
    D_x = output.mean().item()
    fake = netG(torch.randn(batch.size(0), NZ, 1, 1))
    label.fill_(FAKE)
    output = netD(fake.detach())
    errD_fake = criterion(output, label)
    errD_fake.backward()
    D_G_z1 = output.mean().item()
    errD = errD_real + errD_fake
    optimizerD.step()

    # (2) G: maximize log(D(G(z)))
    netG.zero_grad()
    label.fill_(REAL)
    output = netD(fake)
    errG = criterion(output, label)
    errG.backward()
    D_G_z2 = output.mean().item()
    optimizerG.step()
    return errD.item(), errG.item(), D_x, D_G_z1, D_G_z2


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        errD, errG, D_x, D_G_z1, D_G_z2 = train(model, optim, batch)
        print(f"[{step}] Loss_D: {errD:.4f} Loss_G: {errG:.4f} D(x): {D_x:.4f} D(G(z)): {D_G_z1:.4f} / {D_G_z2:.4f}")
    grid, best, _ = infer(model, batch)
    print("image", tuple(grid.shape), "best", best)


if __name__ == "__main__":
    main()
