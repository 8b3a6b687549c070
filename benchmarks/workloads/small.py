"""Small models: where what surrounds the kernels counts."""

import torch
import torch.nn.functional as F
from torch import nn

from .workload import INPUTS, Workload


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
    """Elementwise operators around the mean and the variance of each row, as normalisations and gates are written by
    hand."""

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


WORKLOADS = [
    Workload("mlp", "MLP 8x64, 8 layers", mlp, 4.0),
    Workload("chain-large", "elementwise and row statistics, 256x1024", row_statistics(256, 1024), 4.0),
    Workload("chain-small", "elementwise and row statistics, 8x64", row_statistics(8, 64), 1.5),
    Workload("lstm", "LSTM-cell loop, 2 layers, 64 steps of 4x128", lstm, 2.5),
]
