"""Convolutional networks that classify images."""

import torch
from torch import nn
from torch.nn import functional as F

from ...workloads.skipnet import Residual as Block
from ..workload import BATCHES, Task, Training, supervised


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, outside, 3, stride, 1), nn.Conv2d(outside, outside, 3, 1, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outside) for _ in range(2))
        self.around = nn.Conv2d(inside, outside, 1, stride) if stride > 1 or inside != outside else nn.Identity()

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.around(x))


def classified(model, *size):
    return Task([model], supervised(F.cross_entropy),
                [(torch.randn(size), torch.randint(10, size[:1])) for _ in range(BATCHES)])


def resnet():
    blocks = [Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 256, 2)]
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return classified(model, 4, 3, 64, 64)


def cnn():
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10))
    return classified(model, 16, 3, 32, 32)


class SkipNet(nn.Module):
    """A residual network whose blocks Python skips when their gate says so (Wang et al., ECCV 2018). The gates learn:
    what a block adds counts as much as its gate is open."""

    def __init__(self, widths=(32, 64, 128), blocks=2):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.stages = nn.ModuleList(nn.ModuleList(Block(width) for _ in range(blocks)) for width in widths)
        self.down = nn.ModuleList([*(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in zip(widths, widths[1:])),
                                   nn.Identity()])
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for stage, down in zip(self.stages, self.down):
            for block in stage:
                seen = x.mean((2, 3))
                gate = torch.sigmoid(block.gate(F.layer_norm(seen, seen.shape[1:]))).mean()
                if gate >= 0.5:
                    x = gate * block(x) + (1 - gate) * x
            x = F.relu(down(x))
        return self.head(x.mean((2, 3)))


def skipnet():
    task = classified(SkipNet(), 4, 3, 32, 32)
    # Contrast and colour differ between batches, else all gates, which see averages, would always decide alike.
    task.batches = [(x * (0.5 + torch.rand(1, 3, 1, 1)) + 2 * torch.randn(1, 3, 1, 1), y) for x, y in task.batches]
    return task


WORKLOADS = [
    Training("resnet", "ResNet-18-like, 4x3x64x64", resnet),
    Training("cnn", "CNN 16x3x32x32", cnn),
    Training("skipnet", "SkipNet-like, 4x3x32x32, learned gates, blocks skipped in Python", skipnet),
]
