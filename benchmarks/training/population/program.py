"""What a program of the population is: models, optimizers and a step, as a training script has them."""

import random
from dataclasses import dataclass
from typing import Callable

import numpy
import torch

SEED = 20240917
BATCHES = 4
# Losses of the first steps, relative to eager's: as for the workloads (../workload.py), or so many times what a
# rounding of the parameters makes of eager's own, where it grows (a ReLU at its edge, many norms in a row).
TOLERANCE = 5e-5
ROUNDINGS = 4
PROGRAMS = {}


class Running:
    """A script that is under way. `kept` are the objects whose state_dict says where the training stands."""

    def __init__(self, step, batches, *kept):
        self.step, self.batches, self.kept = step, batches, kept
        self.first = [copied(one.state_dict()) for one in kept]
        self.made = 0

    def __call__(self):
        loss = self.step(*self.batches[self.made % len(self.batches)])
        self.made += 1
        return loss

    def reset(self):
        for one, first in zip(self.kept, self.first):
            one.load_state_dict(copied(first))
        self.made = 0


def copied(tree):
    """Values, not what hangs on them."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(copied(value) for value in tree)
    return tree


@dataclass(frozen=True)
class Program:
    name: str
    title: str
    build: Callable  # accelerate -> Running


def program(title):
    """The function's name is the program's."""

    def register(build):
        name = build.__name__.replace("_", "-")
        PROGRAMS[name] = Program(name, title, build)
        return build

    return register


def seed(number=SEED):
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def supervised(model, optimizer, loss=None, scheduler=None, clip=None):
    """The step of most training scripts. loss: of what the model answers and what is wanted, the last of a batch; None:
    the model answers its own."""

    def step(*given):
        optimizer.zero_grad()
        found = loss(model(*given[:-1]), given[-1]) if loss else model(*given)
        found.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler:
            scheduler.step()
        return found.item()

    return step


def images(count, size, classes=10, channels=3):
    return [(torch.randn(count, channels, size, size), torch.randint(classes, (count,))) for _ in range(BATCHES)]
