"""Whole training steps: forward, backward and optimizer, eager (its default form and `fused=True`) and dycl.

    python -m benchmarks.training [--only mlp,bert] [--rounds 15] [--threads 2] [--optimizer]

--optimizer: of the steps of the optimizer alone. The rounds interleave; microseconds a step, medians over the rounds,
three of which come before for warming up. Losses of the same step must agree.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

import dycl

WARM_UP = 3


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


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, outside, 3, stride, 1), nn.Conv2d(outside, outside, 3, 1, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outside) for _ in range(2))
        self.around = nn.Conv2d(inside, outside, 1, stride) if stride > 1 or inside != outside else nn.Identity()

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.around(x))


def mlp():
    return nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(256, 256), nn.GELU())]), (64, 256)


def cells():
    return Cells(), (32, 2, 64)


def bert():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (4, 64, 256)


def resnet():
    blocks = [Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 256, 2)]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)), (4, 3, 64, 64)


def cnn():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10)), (16, 3, 32, 32)


class Parameters(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.all = nn.ParameterList(torch.randn(size) for size in sizes)


OPTIMIZERS = {
    "mlp": [(256, 256), (256,)] * 4,
    "small": [(64, 64), (64,)] * 50,
    "large": [(100_000,)] * 100,
}
MODELS = {"mlp": mlp, "cells": cells, "bert": bert, "resnet": resnet, "cnn": cnn}
FORMS = {"eager": {}, "fused": {"fused": True}, "dycl": {}}


def training_step(name, form):
    torch.manual_seed(0)
    model, size = MODELS[name]()
    optimizer, x = torch.optim.AdamW(model.parameters(), lr=1e-3, **FORMS[form]), torch.randn(size)
    if form == "dycl":
        dycl.accelerate(model), dycl.accelerate(optimizer)

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def optimizer_step(name, form):
    torch.manual_seed(0)
    model = Parameters(*OPTIMIZERS[name])
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **FORMS[form])
    if form == "dycl":
        dycl.accelerate(optimizer)

    def step():
        optimizer.step()
        return model.all[0][0].sum().item()

    return step


def measure(make, name, rounds):
    """Microseconds a step of each round, by form."""
    steps, times = {form: make(name, form) for form in FORMS}, {form: [] for form in FORMS}
    each = 1
    for round in range(rounds + WARM_UP):
        seen = {}
        for form, step in steps.items():
            began = time.perf_counter()
            for _ in range(each):
                seen[form] = step()
            times[form].append((time.perf_counter() - began) / each * 1e6)
        if round == 0:
            each = max(1, int(30_000 / times["eager"][0]))
        worst = max(abs(value - seen["eager"]) for value in seen.values())
        if worst > 1e-3 * (1 + abs(seen["eager"])):
            raise AssertionError(f"{name}: {seen}")
    return {form: all_of[WARM_UP:] for form, all_of in times.items()}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--optimizer", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    make, names = (optimizer_step, OPTIMIZERS) if options.optimizer else (training_step, MODELS)
    print(f"{'':10}" + "".join(f"{form:>12}" for form in FORMS) + f"{'eager/dycl':>12}{'fused/dycl':>12}")
    for name in options.only.split(",") if options.only else names:
        median = {form: statistics.median(all_of) for form, all_of in measure(make, name, options.rounds).items()}
        print(f"{name:10}" + "".join(f"{t:12.0f}" for t in median.values()) + "".join(
            f"{median[form] / median['dycl']:12.2f}" for form in ("eager", "fused")))


if __name__ == "__main__":
    main()
