"""Networks that classify images, in the forms that made them known, small."""

import torch
from torch import nn
from torch.nn import functional as F

from .program import Running, images, program, supervised


def conv_norm(inside, outside, size, stride=1, groups=1, act=nn.ReLU6):
    return nn.Sequential(nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outside), act())


class Inverted(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, inside, outside, stride, expand):
        super().__init__()
        hidden = inside * expand
        self.use_res_connect = stride == 1 and inside == outside
        self.conv = nn.Sequential(conv_norm(inside, hidden, 1), conv_norm(hidden, hidden, 3, stride, hidden),
                                  nn.Conv2d(hidden, outside, 1, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        if self.use_res_connect:
            return x + self.conv(x)
        return self.conv(x)


@program("MobileNetV2-like, SGD with momentum, cosine schedule, label smoothing")
def mobilenet(accelerate):
    model = accelerate(nn.Sequential(
        conv_norm(3, 16, 3, 2), Inverted(16, 24, 2, 4), Inverted(24, 24, 1, 4), Inverted(24, 32, 2, 4),
        Inverted(32, 32, 1, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=4e-5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2000)
    step = supervised(model, optimizer, nn.CrossEntropyLoss(label_smoothing=0.1), scheduler)
    return Running(step, images(4, 40), model, optimizer, scheduler)


class DenseLayer(nn.Module):
    def __init__(self, inside, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inside), nn.Conv2d(inside, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features):
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1)), inplace=True))
        return self.conv2(F.relu(self.norm2(x), inplace=True))


class DenseNet(nn.Module):
    def __init__(self, growth=12, layers=4, blocks=2):
        super().__init__()
        self.stem, width = nn.Conv2d(3, 24, 3, padding=1, bias=False), 24
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for _ in range(blocks):
            self.blocks.append(nn.ModuleList(DenseLayer(width + i * growth, growth) for i in range(layers)))
            width += layers * growth
            self.transitions.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                                  nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)))
            width //= 2
        self.norm, self.classifier = nn.BatchNorm2d(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        for block, transition in zip(self.blocks, self.transitions):
            features = [x]
            for layer in block:
                features.append(layer(features))
            x = transition(torch.cat(features, 1))
        return self.classifier(F.relu(self.norm(x)).mean((2, 3)))


@program("DenseNet, 2 blocks of 4, SGD with Nesterov momentum, steps of the rate")
def densenet(accelerate):
    model = accelerate(DenseNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [500, 1000])
    return Running(supervised(model, optimizer, F.cross_entropy, scheduler), images(4, 24), model, optimizer, scheduler)


class Fire(nn.Module):
    def __init__(self, inside, squeeze, expand):
        super().__init__()
        self.squeeze, self.activation = nn.Conv2d(inside, squeeze, 1), nn.ReLU(inplace=True)
        self.one, self.three = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = self.activation(self.squeeze(x))
        return torch.cat([self.activation(self.one(x)), self.activation(self.three(x))], 1)


@program("SqueezeNet, Adam, dropout")
def squeezenet(accelerate):
    model = accelerate(nn.Sequential(
        nn.Conv2d(3, 32, 3, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(32, 8, 32),
        Fire(64, 8, 32), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(64, 16, 64), nn.Dropout(0.2),
        nn.Conv2d(128, 10, 1), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    return Running(supervised(model, optimizer, F.cross_entropy), images(4, 48), model, optimizer)


class SqueezeExcite(nn.Module):
    def __init__(self, width, reduced):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, reduced, 1), nn.Conv2d(reduced, width, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(x.mean((2, 3), keepdim=True)))))


class MBConv(nn.Module):
    """EfficientNet's block, with stochastic depth."""

    def __init__(self, inside, outside, stride, drop):
        super().__init__()
        wide, self.drop, self.same = 4 * inside, drop, stride == 1 and inside == outside
        self.expand, self.depthwise = conv_norm(inside, wide, 1, act=nn.SiLU), conv_norm(wide, wide, 3, stride, wide,
                                                                                       nn.SiLU)
        self.excite = SqueezeExcite(wide, inside // 4)
        self.project = nn.Sequential(nn.Conv2d(wide, outside, 1, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = self.project(self.excite(self.depthwise(self.expand(x))))
        if not self.same:
            return y
        if self.training and self.drop:
            keep = 1 - self.drop
            y = y / keep * torch.floor(keep + torch.rand(len(x), 1, 1, 1))
        return x + y


@program("EfficientNet-like: squeeze and excite, stochastic depth, RMSprop, exponential schedule")
def efficientnet(accelerate):
    model = accelerate(nn.Sequential(
        conv_norm(3, 16, 3, 2, act=nn.SiLU), MBConv(16, 16, 1, 0.1), MBConv(16, 24, 2, 0.1), MBConv(24, 24, 1, 0.2),
        conv_norm(24, 64, 1, act=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, momentum=0.9, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    return Running(supervised(model, optimizer, F.cross_entropy, scheduler), images(4, 40), model, optimizer, scheduler)


class Inception(nn.Module):
    def __init__(self, inside, width):
        super().__init__()
        self.one = conv_norm(inside, width, 1, act=nn.ReLU)
        self.three = nn.Sequential(conv_norm(inside, width, 1, act=nn.ReLU), conv_norm(width, width, 3, act=nn.ReLU))
        self.five = nn.Sequential(conv_norm(inside, width // 2, 1, act=nn.ReLU),
                                  conv_norm(width // 2, width, 5, act=nn.ReLU))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(inside, width, 1, act=nn.ReLU))

    def forward(self, x):
        return torch.cat([branch(x) for branch in (self.one, self.three, self.five, self.pool)], 1)


class GoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 32, 3, 2, act=nn.ReLU), nn.MaxPool2d(2))
        self.first, self.second = Inception(32, 16), Inception(64, 24)
        self.auxiliary, self.head = nn.Linear(64, 10), nn.Linear(96, 10)

    def forward(self, x):
        x = self.first(self.stem(x))
        if not self.training:
            return self.head(self.second(x).mean((2, 3)))
        return self.head(self.second(x).mean((2, 3))), self.auxiliary(x.mean((2, 3)))


@program("Inception blocks, an auxiliary head, Adagrad")
def inception(accelerate):
    model = accelerate(GoogLeNet())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()

    def step(x, y):
        optimizer.zero_grad()
        out, auxiliary = model(x)
        loss = criterion(out, y) + 0.3 * criterion(auxiliary, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, images(4, 48), model, optimizer)


class ChannelsFirst(nn.LayerNorm):
    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        apart = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(apart + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dwconv, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.pwconv1, self.pwconv2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(1e-2 * torch.ones(width))

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


@program("ConvNeXt-like, AdamW, a warm-up and a linear decay")
def convnext(accelerate):
    model = accelerate(nn.Sequential(
        nn.Conv2d(3, 32, 4, 4), ChannelsFirst(32), ConvNeXtBlock(32), ConvNeXtBlock(32), ChannelsFirst(32),
        nn.Conv2d(32, 64, 2, 2), ConvNeXtBlock(64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(64),
        nn.Linear(64, 10)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min((k + 1) / 20, 1 - k / 10000))
    return Running(supervised(model, optimizer, F.cross_entropy, scheduler, 1.0), images(4, 48), model, optimizer,
                   scheduler)


class MixerBlock(nn.Module):
    def __init__(self, patches, width):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(patches, 64), nn.GELU(), nn.Linear(64, patches))
        self.channels = nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width))

    def forward(self, x):
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self, width=64, patch=8, size=48):
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.Sequential(*[MixerBlock((size // patch) ** 2, width) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.embed(x).flatten(2).transpose(1, 2))).mean(1))


@program("MLP-Mixer, mixup of the batch, NAdam")
def mlp_mixer(accelerate):
    model = accelerate(Mixer())
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)

    def step(x, y):
        share, order = torch.distributions.Beta(0.4, 0.4).sample().item(), torch.randperm(len(x))
        optimizer.zero_grad()
        out = model(share * x + (1 - share) * x[order])
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, images(8, 48), model, optimizer)


class ViT(nn.Module):
    def __init__(self, width=96, patch=8, size=48):
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.encoder(x)[:, 0])


@program("ViT of torch's encoder layers with dropout, two groups of parameters, accuracy read at each step")
def vit(accelerate):
    model = accelerate(ViT())
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=5e-4, betas=(0.9, 0.95))
    right = []

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        right[:] = [(out.argmax(1) == y).float().mean().item()]
        return loss.item()

    return Running(step, images(8, 48), model, optimizer)


class Shuffle(nn.Module):
    """ShuffleNetV2's unit."""

    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(conv_norm(half, half, 1, act=nn.ReLU), nn.Conv2d(half, half, 3, 1, 1, groups=half),
                                    nn.BatchNorm2d(half), conv_norm(half, half, 1, act=nn.ReLU))

    def forward(self, x):
        kept, changed = x.chunk(2, dim=1)
        x = torch.cat((kept, self.branch(changed)), dim=1)
        b, c, h, w = x.shape
        return x.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, c, h, w)


@program("ShuffleNetV2-like, gradients of two batches are gathered")
def shufflenet(accelerate):
    model = accelerate(nn.Sequential(conv_norm(3, 48, 3, 2), *[Shuffle(48) for _ in range(4)], nn.MaxPool2d(2),
                                     nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        total = 0.0
        for part, labels in zip(x.chunk(2), y.chunk(2)):
            loss = F.cross_entropy(model(part), labels) / 2
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    return Running(step, images(8, 32), model, optimizer)
