"""One training workload: models, an optimizer for each, batches that come in turn, and a step as users write it."""

import random
from dataclasses import dataclass
from typing import Callable

import torch

SEED = 20240917
BATCHES = 4


def adamw(parameters, **form):
    return torch.optim.AdamW(parameters, lr=1e-3, **form)


@dataclass
class Task:
    """What a training script has in hand. step(*models, *optimizers, *batch) -> the losses' numbers, one or several."""

    models: list
    step: Callable
    batches: list  # of tuples
    optimizer: Callable = adamw  # (parameters, **form) -> an optimizer of torch.optim
    name: str = ""  # the workload's


# Losses of the same nine steps from the same parameters, as a part of eager's. Between eager in single and in double
# precision they differ by 1e-6 at most, and by 1.3e-5 between eager and JAX's convolutions. Where one weight matrix is
# not trained, one of them mostly changes by 1e-4 or more. No decision is so close that rounding could turn it: in these
# steps the closest of skipnet's gates is 2e-3 from its threshold, of moe's third best experts 1.5e-5 from the second.
TOLERANCE = 5e-5
# Where biases stand before batch norm their gradients are rounding and nothing else. Adam's steps have the same length
# whatever the size of the gradient, so such biases move in either direction: eager itself differs from double precision
# by 4e-3 (resnet) and 1e-3 (dcgan). A convolution that is not trained changes a loss by 3e-2 (resnet) and 9e-2 (dcgan).
# In skipnet it takes convolutions that round otherwise, as torch.compile's: 2.4e-4, from 5e-6 after the first update;
# the stem's, not trained, 2e-2.
SENSITIVE = {"resnet": 2e-2, "dcgan": 1e-2, "skipnet": 2e-3}


@dataclass(frozen=True)
class Training:
    name: str
    title: str
    build: Callable  # () -> Task
    bytes: Callable = None  # Task -> what a step cannot do without reading or writing, where that is its limit
    calibrate = None
    jobs = "benchmarks.training.job"

    @property
    def tolerance(self):
        return SENSITIVE.get(self.name, TOLERANCE)


def seed():
    torch.manual_seed(SEED)
    random.seed(SEED)


def own_loss(inputs):
    """The step of a model that computes its loss. inputs(*batch) -> its keyword arguments."""

    def step(model, optimizer, *batch):
        optimizer.zero_grad()
        loss = model(**inputs(*batch)).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def supervised(loss):
    """The step of most training scripts."""

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        found = loss(model(x), y)
        found.backward()
        optimizer.step()
        return found.item()

    return step
