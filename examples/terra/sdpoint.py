"""SDPoint (Kuen et al., CVPR 2018): a ResNet-18 that makes its feature maps smaller at a random point, by a random
factor.

Each pass chooses a block and a ratio and writes them into the blocks; at inference the cost is chosen the same way,
within a budget.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 100
RATIOS = (0.5, 0.75)


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        self.downsampling_ratio = 1.0
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False),
                                            nn.BatchNorm2d(planes))

    def forward(self, x):
        residual = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            residual = self.downsample(x)
        out += residual
        out = self.relu(out)
        if self.downsampling_ratio < 1:
            out = F.adaptive_avg_pool2d(out, int(round(out.size(2) * self.downsampling_ratio)))
        return out


class ResNet(nn.Module):
    def __init__(self, layers=(2, 2, 2, 2)):
        super().__init__()
        self.inplanes = 64
        self.blocks = []
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self.make_layer(64, layers[0], 1)
        self.layer2 = self.make_layer(128, layers[1], 2)
        self.layer3 = self.make_layer(256, layers[2], 2)
        self.layer4 = self.make_layer(512, layers[3], 2)
        self.fc = nn.Linear(512, CLASSES)

    def make_layer(self, planes, count, stride):
        layers = []
        for i in range(count):
            layers.append(BasicBlock(self.inplanes, planes, stride if i == 0 else 1))
            self.inplanes = planes
        self.blocks += layers
        return nn.Sequential(*layers)

    def stochastic_downsampling(self, block, ratio):
        for module in self.modules():
            if isinstance(module, BasicBlock):
                module.downsampling_ratio = 1.0
        if self.training and block is None:
            block = random.randint(-1, len(self.blocks) - 2)
            ratio = random.choice(RATIOS)
        if block is not None and block >= 0:
            self.blocks[block].downsampling_ratio = ratio

    def forward(self, x, block=None, ratio=None):
        self.stochastic_downsampling(block, ratio)
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        x = self.maxpool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        x = F.adaptive_avg_pool2d(x, 1)
        x = x.view(x.size(0), -1)
        return self.fc(x)


def build():
    return ResNet()


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(2, 3, 112, 112, generator=generator), torch.randint(0, CLASSES, (2,), generator=generator)


@torch.no_grad()
def infer(model, batch):
    """The cost is chosen for each batch: one of the downsampling points, or none."""
    images, _ = batch
    model.eval()
    block = random.randint(-1, len(model.blocks) - 2)
    ratio = random.choice(RATIOS)
    scores, classes = F.softmax(model(images, block, ratio), dim=1).topk(5, dim=1)
    return block, scores, classes.tolist()


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def train(model, optim, batch):
    images, labels = batch
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optim.zero_grad()
    loss.backward()
    optim.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    random.seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        loss = train(model, optim, batch)
        print(f"step {step}: loss {loss:.4f}, ratios {[block.downsampling_ratio for block in model.blocks]}")
    block, scores, classes = infer(model, batch)
    print(f"smaller after block {block}: classes {classes}")


if __name__ == "__main__":
    main()
