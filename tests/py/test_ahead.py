"""Segments that the runner computes while Python still records them (DYCL_AHEAD=1: always), in processes of their
own."""

import os
from pathlib import Path

import pytest

import started
from suite import FULL

HERE = Path(__file__).parent

PROGRAM = """
import os, sys, threading
import torch
from torch import nn
import dycl

torch.set_grad_enabled(False)
torch.set_num_threads(1)
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.norm, self.conv = nn.LayerNorm(32), nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x, act=None):
        log = []
        for i, layer in enumerate(self.layers):
            x = self.norm(torch.relu(layer(x)) + x)
            log.append(sum(k * k for k in range(200)))
            if act:
                x = act(i, x)
        y = self.conv(x.reshape(1, 1, *x.shape)).mean((2, 3))
        return x, y, len(log)


def same(got, want):
    assert type(got) is type(want)
    for a, b in zip(got, want):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
        else:
            assert a == b


def both(model, *args):
    with dycl.disable():
        want = model(*args)
    same(model(*args), want)


model = dycl.accelerate(Model().eval())
x = torch.randn(16, 32)
"""

STORIES = {
    "the expected path": """
for _ in range(20): both(model, torch.randn(16, 32))
assert dycl.stats(model)["ahead"] > 10
""",
    "numbers are inputs": """
for n in range(20): both(model, x, lambda i, y: y * (1.0 + 0.1 * n) + n)
assert dycl.stats(model)["ahead"] > 10
""",
    "divergence": """
def act(at, kind):
    def f(i, y):
        if i != at: return y
        return [torch.tanh(y), y * 2, y[:, :32] - 1, torch.sigmoid(y) + y][kind]
    return f
import random
random.seed(0)
for _ in range(60): both(model, x, act(random.randint(0, 5), random.randint(0, 3)))
before = dycl.stats(model)["ahead"]
for _ in range(10): both(model, x, act(2, 1))
assert dycl.stats(model)["ahead"] > before
""",
    "other outputs than expected": """
kept = []
def keep(n):
    def f(i, y):
        if n >> i & 1: kept.append((y, y.clone()))
        return y
    return f
for n in [0, 0, 0, 5, 0, 5, 63, 1, 0, 0, 63, 63, 63, 5]: both(model, x, keep(n))
for a, b in kept: torch.testing.assert_close(a, b)
""",
    "values that are asked for": """
def ask(i, y):
    return y + 1 if y[0, 0].item() > 0 else y - 1
for _ in range(20): both(model, torch.randn(16, 32), ask)
assert dycl.stats(model)["ahead"] > 20
""",
    "an argument is written": """
class Writes(nn.Module):
    def forward(self, x):
        y = torch.tanh(x * 2) + x
        z = y.mean(-1)
        x.add_(1)
        return y * x, z
w = dycl.accelerate(Writes())
for _ in range(12):
    a = torch.randn(64, 64); b = a.clone()
    with dycl.disable(): want = w(b)
    same(w(a), want)
    assert torch.equal(a, b)
""",
    "weights are written": """
for _ in range(12):
    model.layers[2].weight.mul_(0.9)
    both(model, x)
    model.layers[3].weight.data.add_(0.01)
    both(model, x)
""",
    "NaN and infinities": """
for value in [1.0, 1.0, 1.0, float("nan"), float("inf"), 1.0, -float("inf"), 1e10, 1.0]:
    y = x.clone(); y[3, 3] = value
    both(model, y)
""",
    "exceptions": """
def fails(i, y):
    if i == 3: raise KeyError("stop")
    return y
for _ in range(10):
    try: model(x, fails)
    except KeyError: pass
    else: assert 0
    both(model, x)
""",
    "threads": """
def work():
    for _ in range(20):
        with torch.no_grad(): got = model(x)
        same(got, want)
want = model(x)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
""",
    "fork": """
for _ in range(6): both(model, x)
def fork(i, y):
    global child
    if i == 3:
        child = os.fork()
    return y
for _ in range(4):
    with dycl.disable(): want = model(x)
    got = model(x, fork)
    same(got, want)
    if child == 0:
        for _ in range(6): both(model, x)
        assert dycl.stats(model)["ahead"] > 0
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    both(model, x)
""",
}


def run(source, **environment):
    done = started.run(["-c", source], env=os.environ | environment, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the runner needs a processor of its own")
@pytest.mark.parametrize("story", STORIES)
def test_ahead(story):
    run(PROGRAM + STORIES[story], DYCL_AHEAD="1", DYCL_CHOOSE="0", OMP_NUM_THREADS="1")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the runner needs a processor of its own")
def test_random_programs_ahead():
    done = started.run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", HERE / "test_random_programs.py",
                        HERE / "test_loops.py", *[HERE / "test_nan.py"] * FULL],
                       env=os.environ | {"DYCL_AHEAD": "1", "OMP_NUM_THREADS": "1", "DYCL_TEST_FULL": ""}, timeout=500)
    assert done.returncode == 0, done.stdout[-4000:]


def test_off():
    run(PROGRAM + STORIES["the expected path"].replace("> 10", "== 0"), DYCL_AHEAD="0", DYCL_CHOOSE="0")
