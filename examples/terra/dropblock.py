"""DropBlock (Ghiasi et al., NeurIPS 2018): a ResNet-9 whose first two stages lose whole blocks of their activations, at
a rate that rises from call to call.

The rate is an attribute that every forward pass changes. The prediction is Monte-Carlo: the masks stay on, and several
passes give a mean and a spread.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10
SAMPLES = 3


class DropBlock2D(nn.Module):
    def __init__(self, drop_prob, block_size):
        super().__init__()
        self.drop_prob = drop_prob
        self.block_size = block_size

    def forward(self, x):
        assert x.dim() == 4, f"expected 4 dimensions (batch, channels, height, width), got {x.dim()}"
        if not self.training or self.drop_prob == 0.0:
            return x
        gamma = self.compute_gamma()
        mask = (torch.rand(x.shape[0], *x.shape[2:]) < gamma).float()
        mask = mask.to(x.device)
        block_mask = self.compute_block_mask(mask)
        out = x * block_mask[:, None, :, :]
        return out * block_mask.numel() / block_mask.sum()

    def compute_block_mask(self, mask):
        block_mask = F.max_pool2d(mask[:, None, :, :], kernel_size=(self.block_size, self.block_size), stride=(1, 1),
                                  padding=self.block_size // 2)
        if self.block_size % 2 == 0:
            block_mask = block_mask[:, :, :-1, :-1]
        return 1 - block_mask.squeeze(1)

    def compute_gamma(self):
        return self.drop_prob / self.block_size**2


class LinearScheduler(nn.Module):
    def __init__(self, dropblock, start_value, stop_value, steps):
        super().__init__()
        self.dropblock = dropblock
        self.i = 0
        self.drop_values = np.linspace(start=start_value, stop=stop_value, num=steps)

    def forward(self, x):
        return self.dropblock(x)

    def step(self):
        if self.i < len(self.drop_values):
            self.dropblock.drop_prob = self.drop_values[self.i]
        self.i += 1


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False),
                                            nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet9(nn.Module):
    def __init__(self, drop_prob=0.25, block_size=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.dropblock = LinearScheduler(DropBlock2D(drop_prob, block_size), start_value=0.0, stop_value=drop_prob,
                                         steps=50)
        self.layer1 = BasicBlock(64, 64, 1)
        self.layer2 = BasicBlock(64, 128, 2)
        self.layer3 = BasicBlock(128, 256, 2)
        self.layer4 = BasicBlock(256, 512, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, CLASSES)

    def forward(self, x):
        self.dropblock.step()  # one iteration more
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(x)
        x = self.dropblock(self.layer1(x))
        x = self.dropblock(self.layer2(x))
        x = self.layer3(x)
        x = self.layer4(x)
        x = self.avgpool(x)
        return self.fc(x.view(x.size(0), -1))


def build():
    return ResNet9()


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        count = 4 if torch.rand((), generator=generator) < 0.7 else 2  # the last batch of an epoch is smaller
        yield torch.randn(count, 3, 32, 32, generator=generator), torch.randint(0, CLASSES, (count,),
                                                                                generator=generator)


@torch.no_grad()
def infer(model, batch):
    images, _ = batch
    model.eval()
    model.dropblock.train()
    samples = torch.stack([F.softmax(model(images), dim=1) for _ in range(SAMPLES)])
    return samples.mean(0), samples.std(0)


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)


def train(model, optim, batch):
    images, labels = batch
    model.train()
    optim.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optim.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        print(f"step {step}: loss {train(model, optim, batch):.4f}, drop probability "
              f"{model.dropblock.dropblock.drop_prob:.4f}")
    mean, spread = infer(model, batch)
    print("classes", mean.argmax(1).tolist(), "spread", [round(s, 4) for s in spread.amax(1).tolist()])


if __name__ == "__main__":
    main()
