"""What is measured: a model, the inputs it is called with in turn, and what dycl is meant to reach.

Everything is made from random configurations with fixed seeds, so that every process builds the same model and the
same inputs. The input sets of the models with data-dependent control flow take different paths; a peer that traced one
of them gives a wrong result on another and is shown as wrong.
"""

from dataclasses import dataclass
from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import nn

SEED = 20240917
INPUTS = 4


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    build: Callable  # () -> (module, list of input tensors)
    goal: Optional[float]  # what dycl has to be faster than eager by; None: no slower
    tolerance: float = 1e-4  # largest error allowed, as a part of the largest absolute value of eager's result
    calibrate: Optional[Callable] = None  # module -> list of input tensors; runs the model, so never where it is timed


# ------------------------------------------------------------------------------------------------- small models


class MLPBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(F.gelu(self.linear(x)))


def mlp():
    model = nn.Sequential(*[MLPBlock(64) for _ in range(8)])
    return model, [torch.randn(8, 64) for _ in range(INPUTS)]


class RowStatistics(nn.Module):
    """Elementwise operators around the mean and the variance of each row, as normalisations and gates are written by hand."""

    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        x = x * 1.25 + self.bias
        y = F.gelu(x) * torch.sigmoid(x) + torch.tanh(x * 0.5)
        mean = y.mean(-1, keepdim=True)
        variance = y.var(-1, keepdim=True, unbiased=False)
        y = (y - mean) * torch.rsqrt(variance + 1e-5)
        return y * self.weight + x * 0.1


def row_statistics(rows, width):
    def build():
        return RowStatistics(width), [torch.randn(rows, width) for _ in range(INPUTS)]

    return build


class LSTMCell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.from_input = nn.Linear(width, 4 * width)
        self.from_state = nn.Linear(width, 4 * width)

    def forward(self, x, h, c):
        i, f, g, o = (self.from_input(x) + self.from_state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


class StackedLSTM(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.cells = nn.ModuleList([LSTMCell(width) for _ in range(layers)])

    def forward(self, sequence):
        h = [torch.zeros_like(sequence[0]) for _ in self.cells]
        c = [torch.zeros_like(sequence[0]) for _ in self.cells]
        outputs = []
        for x in sequence:
            for k, cell in enumerate(self.cells):
                h[k], c[k] = cell(x, h[k], c[k])
                x = h[k]
            outputs.append(x)
        return torch.stack(outputs)


def lstm():
    return StackedLSTM(128, layers=2), [torch.randn(64, 4, 128) for _ in range(INPUTS)]


# ------------------------------------------------------------------------------------------------- SkipNet


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
    """A residual network whose blocks Python skips when their gate says so (Wang et al., ECCV 2018), or without gates."""

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
    return [torch.randn(1, 3, size, size) * (0.5 + torch.rand(1, 3, 1, 1)) + torch.randn(1, 3, 1, 1) for _ in range(count)]


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
    """Gates that decide either way, and inputs on different paths, none so close to a threshold that rounding could decide."""
    set_gates(model, images(16))
    chosen = {}
    for x in sorted(images(64), key=lambda x: -model.path(x)[1]):
        chosen.setdefault(model.path(x)[0], x)
    return list(chosen.values())[:INPUTS]


# ------------------------------------------------------------------------------------------------- transformers


class Only(nn.Module):
    """One tensor in, one tensor out, which is what every exporter takes."""

    def __init__(self, model, result):
        super().__init__()
        self.model = model
        self.result = result

    def forward(self, x):
        return getattr(self.model(x), self.result)


def resnet50():
    from transformers import ResNetConfig, ResNetForImageClassification

    return Only(ResNetForImageClassification(ResNetConfig()), "logits"), [torch.randn(1, 3, 224, 224) for _ in range(INPUTS)]


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=6)
    model = Only(BertModel(config), "last_hidden_state")
    return model, [torch.randint(0, config.vocab_size, (1, 128)) for _ in range(INPUTS)]


def vit():
    from transformers import ViTConfig, ViTModel

    model = Only(ViTModel(ViTConfig(num_hidden_layers=6)), "last_hidden_state")
    return model, [torch.randn(1, 3, 224, 224) for _ in range(INPUTS)]


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, use_cache=False)
    model = Only(GPT2LMHeadModel(config), "logits")
    return model, [torch.randint(0, config.vocab_size, (1, 128)) for _ in range(INPUTS)]


# ------------------------------------------------------------------------------------------------- programs that gain nothing


class Unrepresented(nn.Module):
    """Operators that dycl does not record, between some that it does: each ends a segment."""

    def forward(self, x):
        for _ in range(12):
            x = torch.special.erfcx(torch.cumprod(x, -1))
            x = torch.linalg.matrix_norm(x) * 0.01 + torch.special.i0(x)
        return x


class EveryValue(nn.Module):
    """Python reads a value after each operator."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            x = layer(x)
            total += x[0, 0].item()
            x = torch.tanh(x)
            total += x[0, 0].item()
        return x * total


class NewPath(nn.Module):
    """No two of a million calls take the same path; all give the same result, because the factors are powers of two."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        for i in range(20):
            x = torch.tanh(self.linear(x))
            if self.calls >> i & 1:
                x = (x * 2) * 0.5
            else:
                x = (x + x) * 0.5
        return x


def unrepresented():
    return Unrepresented(), [torch.rand(16, 16) for _ in range(INPUTS)]


def every_value():
    return EveryValue(64, layers=8), [torch.randn(8, 64) for _ in range(INPUTS)]


def new_path():
    return NewPath(32), [torch.randn(8, 32) for _ in range(INPUTS)]


WORKLOADS = [
    Workload("mlp", "MLP 8x64, 8 layers", mlp, 4.0),
    Workload("chain-large", "elementwise and row statistics, 256x1024", row_statistics(256, 1024), 4.0),
    Workload("chain-small", "elementwise and row statistics, 8x64", row_statistics(8, 64), 1.5),
    Workload("lstm", "LSTM-cell loop, 2 layers, 64 steps of 4x128", lstm, 2.5),
    Workload("skipnet", "SkipNet-like CNN, 1x3x32x32, blocks skipped in Python", skipnet(True), 1.5,
             calibrate=calibrate_skipnet),
    Workload("cnn", "the same CNN without skips", skipnet(False), None),
    Workload("resnet50", "transformers ResNet-50, 1x3x224x224", resnet50, 1.45),
    Workload("bert", "transformers BERT, 6 layers, 1x128", bert, 1.2),
    Workload("vit", "transformers ViT, 6 layers, 1x3x224x224", vit, 1.2),
    Workload("gpt2", "transformers GPT-2, 6 layers, forward, 1x128", gpt2, None),
    Workload("unrepresented", "operators that dycl does not record, 16x16", unrepresented, None),
    Workload("every-value", "a value read after each operator, 8x64, 8 layers", every_value, None),
    Workload("new-path", "new control flow at each call, 8x32, 20 layers", new_path, None),
]
BY_NAME = {workload.name: workload for workload in WORKLOADS}
NO_SLOWER = 0.97  # the goal where none is named: within the noise of eager


def build(name, saved=None):
    """The model in eval mode and the inputs of a workload, the same in every process.

    Where saved names a file, what calibrate() found is read from it, and nothing of the model has run in this process.
    """
    torch.manual_seed(SEED)
    model, inputs = BY_NAME[name].build()
    model.eval()
    if BY_NAME[name].calibrate:
        if saved:
            found = torch.load(saved)
            model.load_state_dict(found["state"])
            inputs = found["inputs"]
        else:
            inputs = BY_NAME[name].calibrate(model)
    return model, inputs


def save_calibrated(name, path):
    model, inputs = build(name)
    torch.save({"state": model.state_dict(), "inputs": inputs}, path)
