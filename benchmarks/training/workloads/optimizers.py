"""Steps of AdamW alone."""

import torch
from torch import nn

from ..workload import BATCHES, Task, Training


class Parameters(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.all = nn.ParameterList(torch.randn(size) for size in sizes)


def alone(model, optimizer):
    optimizer.step()
    return model.all[0].flatten()[:100].sum().item()  # there is no loss; this shows that the step was made


def optimizer(sizes):
    def build():
        model = Parameters(sizes)
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        return Task([model], alone, [()] * BATCHES)

    return build


def traffic(task):
    """AdamW reads parameter, gradient and two averages, and writes all but the gradient."""
    return 7 * sum(p.numel() * p.element_size() for p in task.models[0].parameters())


WORKLOADS = [
    Training("adamw-mlp", "AdamW, 8 tensors, 0.26 M elements", optimizer([(256, 256), (256,)] * 4)),
    Training("adamw-small", "AdamW, 100 tensors, 0.2 M elements", optimizer([(64, 64), (64,)] * 50)),
    Training("adamw-large", "AdamW, 100 tensors, 10 M elements", optimizer([(100_000,)] * 100), bytes=traffic),
]
