"""Programs that dycl cannot help: they must not become slower."""

import torch
from torch import nn

from .workload import INPUTS, Workload


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
    Workload("unrepresented", "operators that dycl does not record, 16x16", unrepresented, None),
    Workload("every-value", "a value read after each operator, 8x64, 8 layers", every_value, None),
    Workload("new-path", "new control flow at each call, 8x32, 20 layers", new_path, None),
]
