"""Small models: where what surrounds the kernels counts."""

import torch
from torch import nn
from torch.nn import functional as F

from ..workload import BATCHES, Task, Training, supervised


def mlp():
    model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(256, 256), nn.GELU())])
    return Task([model], supervised(F.mse_loss), [(torch.randn(64, 256), torch.randn(64, 256)) for _ in range(BATCHES)])


class Cells(nn.Module):
    """An LSTM cell over a sequence, in a Python loop."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(64, 128), nn.Linear(128, 10)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1], 128)
        for step in x:
            h, c = self.cell(step, (h, c))
        return self.head(h)


def cells():
    return Task([Cells()], supervised(F.cross_entropy),
                [(torch.randn(32, 2, 64), torch.randint(10, (2,))) for _ in range(BATCHES)])


WORKLOADS = [
    Training("mlp", "MLP 64x256, 4 layers, GELU", mlp),
    Training("cells", "LSTM-cell loop, 32 steps of 2x64, 128 wide", cells),
]
