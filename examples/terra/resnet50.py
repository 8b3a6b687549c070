"""ResNet-50 (He et al., CVPR 2016), in its usual form: stride in the 3x3 convolution of a bottleneck. Evaluation counts
what is right with Python's numbers."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 1000


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x):
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        out = self.relu(out)
        out = self.conv3(out)
        out = self.bn3(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.inplanes = 64
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self.make_layer(64, layers[0])
        self.layer2 = self.make_layer(128, layers[1], stride=2)
        self.layer3 = self.make_layer(256, layers[2], stride=2)
        self.layer4 = self.make_layer(512, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * Bottleneck.expansion, CLASSES)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def make_layer(self, planes, blocks, stride=1):
        out = planes * Bottleneck.expansion
        downsample = None
        if stride != 1 or self.inplanes != out:
            downsample = nn.Sequential(nn.Conv2d(self.inplanes, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))
        layers = [Bottleneck(self.inplanes, planes, stride, downsample)]
        self.inplanes = out
        layers += [Bottleneck(out, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.relu(x)
        x = self.maxpool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.fc(x)


class AverageMeter:
    """The latest value and the mean of all."""

    def __init__(self, name):
        self.name, self.val, self.sum, self.count = name, 0.0, 0.0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    def __str__(self):
        return f"{self.name} {self.val:.3f} ({self.sum / self.count:.3f})"


def accuracy(output, target, topk=(1, 5)):
    maxk = max(topk)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)).item() for k in topk]


def build():
    return ResNet([3, 4, 6, 3])


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = (128, 160, 192)
    while True:
        size = sizes[int(torch.randint(0, len(sizes), (), generator=generator))]
        yield torch.randn(1, 3, size, size, generator=generator), torch.randint(0, CLASSES, (1,), generator=generator)


@torch.no_grad()
def infer(model, batch):
    images, target = batch
    model.eval()
    output = model(images)
    loss = F.cross_entropy(output, target)
    acc1, acc5 = accuracy(output, target)
    return output, loss.item(), acc1, acc5


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)


def train(model, optim, batch):
    images, target = batch
    images, target = torch.cat([images, images.flip(3)]), target.repeat(2)
    model.train()
    output = model(images)
    loss = F.cross_entropy(output, target)
    acc1, acc5 = accuracy(output.detach(), target)
    optim.zero_grad()
    loss.backward()
    optim.step()
    return loss.item(), acc1, acc5


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    losses, top1 = AverageMeter("loss"), AverageMeter("top-1")
    for step, batch in zip(range(3), inputs(0)):
        loss, acc1, _ = train(model, optim, batch)
        losses.update(loss)
        top1.update(acc1)
        print(f"step {step}: {losses} {top1}")
    output, loss, _, _ = infer(model, batch)
    print(f"evaluation: loss {loss:.4f}, class {output.argmax(1).item()}")


if __name__ == "__main__":
    main()
