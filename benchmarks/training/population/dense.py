"""Images that are answered for every place: segmented, detected, enlarged, cleaned, restyled."""

import torch
from torch import nn
from torch.nn import functional as F

from .program import BATCHES, Running, images, program, supervised


def double(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside),
                         nn.ReLU(inplace=True), nn.Conv2d(outside, outside, 3, padding=1, bias=False),
                         nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.inside, self.down1, self.down2 = double(1, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up1, self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.right1, self.right2 = double(4 * width, 2 * width), double(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.inside(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        x = self.right1(torch.cat([b, self.up1(c)], dim=1))
        return self.head(self.right2(torch.cat([a, self.up2(x)], dim=1)))


def dice_loss(logits, mask):
    shares, truth = F.softmax(logits, 1), F.one_hot(mask, logits.shape[1]).permute(0, 3, 1, 2).float()
    both = (shares * truth).sum((0, 2, 3))
    return 1 - ((2 * both + 1e-6) / (shares.sum((0, 2, 3)) + truth.sum((0, 2, 3)) + 1e-6)).mean()


@program("U-Net, cross entropy and dice loss, RMSprop, clipped")
def unet_dice(accelerate):
    model = accelerate(UNet())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, weight_decay=1e-8, momentum=0.9)
    return Running(supervised(model, optimizer, lambda out, y: F.cross_entropy(out, y) + dice_loss(out, y), clip=1.0),
                   [(torch.randn(2, 1, 48, 48), torch.randint(3, (2, 48, 48))) for _ in range(BATCHES)], model,
                   optimizer)


class FPN(nn.Module):
    """RetinaNet's form: features of three sizes, heads that they share."""

    def __init__(self, width=24, classes=4, anchors=3):
        super().__init__()
        self.stages = nn.ModuleList(nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.GroupNorm(4, o), nn.ReLU())
                                    for i, o in ((3, 16), (16, 24), (24, 32), (32, 48)))
        self.lateral = nn.ModuleList(nn.Conv2d(i, width, 1) for i in (24, 32, 48))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.kinds = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                   nn.Conv2d(width, anchors * classes, 3, padding=1))
        self.boxes = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                   nn.Conv2d(width, anchors * 4, 3, padding=1))
        self.classes = classes

    def forward(self, x):
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        levels, above = [], None
        for feature, lateral, smooth in list(zip(found[1:], self.lateral, self.smooth))[::-1]:
            level = lateral(feature)
            if above is not None:
                level = level + F.interpolate(above, scale_factor=2, mode="nearest")
            above = level
            levels.append(smooth(level))
        kinds = [self.kinds(x).permute(0, 2, 3, 1).reshape(len(x), -1, self.classes) for x in levels]
        boxes = [self.boxes(x).permute(0, 2, 3, 1).reshape(len(x), -1, 4) for x in levels]
        return torch.cat(kinds, 1), torch.cat(boxes, 1)


def focal(logits, target, alpha=0.25, gamma=2.0):
    p, ce = torch.sigmoid(logits), F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    right = p * target + (1 - p) * (1 - target)
    return ((alpha * target + (1 - alpha) * (1 - target)) * ce * (1 - right) ** gamma).sum()


@program("detection: feature pyramid, shared heads, focal loss, boxes of those that are there")
def detector(accelerate):
    model = accelerate(FPN())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def step(x, kinds, boxes):
        optimizer.zero_grad()
        scores, places = model(x)
        there = kinds >= 0
        target = torch.zeros_like(scores)
        target[there, kinds[there]] = 1.0
        count = max(1, there.sum().item())
        loss = focal(scores, target) / count
        loss = loss + F.smooth_l1_loss(places[there], boxes[there], beta=0.1, reduction="sum") / count
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.item()

    places = 3 * (16 * 16 + 8 * 8 + 4 * 4)
    batches = [(torch.randn(2, 3, 64, 64), torch.where(torch.rand(2, places) < 0.02, torch.randint(4, (2, places)), -1),
                torch.randn(2, places, 4)) for _ in range(BATCHES)]
    return Running(step, batches, model, optimizer)


class Enlarge(nn.Module):
    """EDSR-like, with PixelShuffle."""

    def __init__(self, width=24):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(True),
                                                nn.Conv2d(width, width, 3, padding=1)) for _ in range(3))
        self.tail = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(),
                                  nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x):
        y = first = self.head(x)
        for block in self.body:
            y = y + block(y).mul(0.1)
        return self.tail(y + first) + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)


@program("super resolution with PixelShuffle and a bicubic base, L1 loss, PSNR through NumPy")
def super_resolution(accelerate):
    model = accelerate(Enlarge())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.99))
    seen = []

    def step(x, y):
        optimizer.zero_grad()
        out = model(x)
        loss = F.l1_loss(out, y)
        loss.backward()
        optimizer.step()
        seen[:] = [float(((out.detach().numpy() - y.numpy()) ** 2).mean())]
        return loss.item()

    return Running(step, [(torch.rand(2, 3, 20, 20), torch.rand(2, 3, 40, 40)) for _ in range(BATCHES)], model,
                   optimizer)


class Features(nn.Module):
    """Fixed: what a loss looks at."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in ((3, 12), (12, 16), (16, 24)))
        self.requires_grad_(False)

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = F.relu(layer(x))
            found.append(x)
            x = F.avg_pool2d(x, 2)
        return found


def gram(x):
    b, c, h, w = x.shape
    x = x.view(b, c, h * w)
    return x.bmm(x.transpose(1, 2)) / (c * h * w)


class Restyle(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(4), nn.Conv2d(3, width, 9), nn.InstanceNorm2d(width, affine=True), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width, affine=True), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(2 * width, width, 3),
            nn.InstanceNorm2d(width, affine=True), nn.ReLU(), nn.ReflectionPad2d(1), nn.Conv2d(width, 3, 3))

    def forward(self, x):
        return torch.sigmoid(self.layers(x))


@program("style transfer: a network with instance norm, Gram matrices of fixed features, total variation")
def style_transfer(accelerate):
    model, features = accelerate(Restyle()), accelerate(Features())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with torch.no_grad():
        style = [gram(f) for f in features(torch.rand(1, 3, 32, 32))]

    def step(x):
        optimizer.zero_grad()
        y = model(x)
        made, content = features(y), features(x)[1]
        loss = F.mse_loss(made[1], content)
        for f, s in zip(made, style):
            loss = loss + 1e3 * F.mse_loss(gram(f), s.expand(len(x), -1, -1))
        loss = loss + 1e-3 * ((y[..., 1:] - y[..., :-1]).abs().mean() + (y[..., 1:, :] - y[..., :-1, :]).abs().mean())
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.rand(2, 3, 32, 32),) for _ in range(BATCHES)], model, optimizer)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(16, 32, 3, 2, 1),
                                  nn.LeakyReLU(0.1))
        self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(32, 16, 3, padding=1),
                                nn.LeakyReLU(0.1), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, x):
        return self.up(self.down(x))


@program("denoising autoencoder, bilinear upsampling, Lion written by hand")
def denoiser(accelerate):
    model = accelerate(Denoiser())
    optimizer = Lion(model.parameters(), lr=1e-4)

    def step(x):
        noisy = (x + 0.2 * torch.randn_like(x)).clamp(0, 1)
        optimizer.zero_grad()
        loss = F.mse_loss(model(noisy), x)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.rand(8, 1, 28, 28),) for _ in range(BATCHES)], model, optimizer)


class Lion(torch.optim.Optimizer):
    """Chen et al., 2023: the sign of an average."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["average"] = torch.zeros_like(p)
                average, (beta1, beta2) = state["average"], group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((average * beta1 + p.grad * (1 - beta1)).sign_(), alpha=-group["lr"])
                average.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Transformer(nn.Module):
    """Jaderberg et al., 2015: the image is turned before it is read."""

    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2),
                                  nn.ReLU(), nn.Flatten(), nn.Linear(90, 32), nn.ReLU(), nn.Linear(32, 6))
        self.look[-1].weight.data.zero_()
        self.look[-1].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
        self.read = nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(1440, 10))

    def forward(self, x):
        grid = F.affine_grid(self.look(x).view(-1, 2, 3), x.size(), align_corners=False)
        return F.log_softmax(self.read(F.grid_sample(x, grid, align_corners=False)), dim=1)


@program("spatial transformer: affine_grid and grid_sample, SGD, a weighted negative log likelihood")
def spatial_transformer(accelerate):
    model = accelerate(Transformer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weights = torch.linspace(0.5, 1.5, 10)
    return Running(supervised(model, optimizer, lambda out, y: F.nll_loss(out, y, weights)),
                   images(8, 28, channels=1), model, optimizer)
