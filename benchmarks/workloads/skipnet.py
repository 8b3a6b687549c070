"""A CNN with data-dependent control flow, and the same without."""

import torch
import torch.nn.functional as F
from torch import nn

from .workload import INPUTS, Workload


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.gate = nn.Linear(channels, 1)

    def logit(self, x):
        return self.gate(x.mean((2, 3)))

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class SkipNet(nn.Module):
    """A residual network whose blocks Python skips when their gate says so (Wang et al., ECCV 2018), or without
    gates."""

    def __init__(self, skip, widths=(32, 64, 128), blocks=4):
        super().__init__()
        self.skip = skip
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.stages = nn.ModuleList()
        self.down = nn.ModuleList()
        for k, width in enumerate(widths):
            self.stages.append(nn.ModuleList([Residual(width) for _ in range(blocks)]))
            last = k + 1 == len(widths)
            self.down.append(nn.Identity() if last else nn.Conv2d(width, widths[k + 1], 3, stride=2, padding=1))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for stage, down in zip(self.stages, self.down):
            for block in stage:
                if self.skip and torch.sigmoid(block.logit(x)).mean() < 0.5:
                    continue
                x = block(x)
            x = F.relu(down(x))
        return self.head(x.mean((2, 3)))

    def path(self, x):
        """Which blocks run for x, and how far the closest gate is from deciding otherwise."""
        x, taken, margin = F.relu(self.stem(x)), [], float("inf")
        for stage, down in zip(self.stages, self.down):
            for block in stage:
                logit = block.logit(x).mean().item()
                taken.append(logit >= 0)
                margin = min(margin, abs(logit))
                if taken[-1]:
                    x = block(x)
            x = F.relu(down(x))
        return tuple(taken), margin


def images(count, size=32):
    # Contrast and colour differ between images: otherwise the gates, which see averages, would all say the same.
    return [torch.randn(1, 3, size, size) * (0.5 + torch.rand(1, 3, 1, 1)) + torch.randn(1, 3, 1, 1)
            for _ in range(count)]


@torch.no_grad()
def set_gates(model, probes):
    """Untrained gates would always decide alike: put each gate's threshold where half of the probes skip its block."""
    states = [F.relu(model.stem(x)) for x in probes]
    for stage, down in zip(model.stages, model.down):
        for block in stage:
            block.gate.bias.zero_()
            logits = torch.stack([block.logit(x).mean() for x in states])
            block.gate.bias.fill_(-logits.median().item())
            states = [x if block.logit(x).mean() < 0 else block(x) for x in states]
        states = [F.relu(down(x)) for x in states]


def skipnet(skip):
    @torch.no_grad()
    def build():
        model = SkipNet(skip)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
        return model, images(INPUTS)

    return build


@torch.no_grad()
def calibrate_skipnet(model):
    """Gates that decide either way, and inputs on different paths, none so close to a threshold that rounding could
    decide."""
    set_gates(model, images(16))
    chosen = {}
    for x in sorted(images(64), key=lambda x: -model.path(x)[1]):
        chosen.setdefault(model.path(x)[0], x)
    return list(chosen.values())[:INPUTS]


WORKLOADS = [
    Workload("skipnet", "SkipNet-like CNN, 1x3x32x32, blocks skipped in Python", skipnet(True), 1.5,
             calibrate=calibrate_skipnet),
    Workload("cnn", "the same CNN without skips", skipnet(False), None),
]
