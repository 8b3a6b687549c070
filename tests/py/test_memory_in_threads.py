"""Another thread gives a tensor other memory, while what was recorded of it waits to be computed."""

import os
import subprocess
import sys

import pytest

START = """
import threading, torch, dycl, torch.nn as nn
torch.set_num_threads(1)

def elsewhere(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
"""
WAYS = {
    "data": "x.data = torch.zeros(3)",
    "set": "x.set_(torch.zeros(3))",
    "storage": "x.untyped_storage().resize_(0)",
    "swap": "torch.utils.swap_tensors(x, torch.zeros(3))",
}
READS = """
def program(x):
    y = x * 2
    elsewhere(lambda: change(x))
    return (y + 1).sum().item()

for f in (program, dycl.accelerate(program)):
    print([f(torch.ones(SIZE)) for i in range(4)])
"""
TRAINS = """
def program(x, w):
    y = w * x
    def change():
        w.data = torch.full((SIZE,), 2.)
    elsewhere(change)
    return y.sum()

for f in (program, dycl.accelerate(program)):
    told = []
    for i in range(4):
        w = nn.Parameter(torch.ones(SIZE))
        loss = f(torch.ones(SIZE) * (i + 1), w)
        loss.backward()
        told += [loss.item(), w.grad[0].item(), w[0].item()]
    print(told)
"""
AMONG_MANY = """
import time
steps, stop, most = [0] * 8, False, []

def train(nth):
    model, x = nn.Sequential(*[nn.Linear(SIZE, SIZE) for _ in range(4)]), torch.randn(SIZE, SIZE)
    step = dycl.accelerate(lambda x: model(x).square().mean())
    while not stop:
        step(x).backward()
        steps[nth] += 1

threads = [threading.Thread(target=train, args=(nth,)) for nth in range(len(steps))]
for thread in threads: thread.start()
while min(steps) < 3: time.sleep(0.1)
x = torch.zeros(3)
for _ in range(4):
    before = sum(steps)
    x.data = torch.ones(3)
    most.append(sum(steps) - before)
    time.sleep(0.01)
stop = True
for thread in threads: thread.join()
print(max(most) <= 3 * len(steps) or most)
print(True)
"""


def run(program, size):
    run = subprocess.run([sys.executable, "-X", "faulthandler", "-c", START + program.replace("SIZE", str(size))],
                         capture_output=True, text=True, timeout=300,
                         env={**os.environ, "DYCL_CHOOSE": "0", "MALLOC_PERTURB_": "90"})
    assert run.returncode == 0, run.stderr
    eager, accelerated = run.stdout.splitlines()
    assert eager == accelerated


@pytest.mark.parametrize("size", (1000, 4_000_000), ids=("kept", "unmapped"))
@pytest.mark.parametrize("way", WAYS)
def test_memory_that_waiting_operators_read(way, size):
    run(f"def change(x):\n    {WAYS[way]}\n" + READS, size)


@pytest.mark.parametrize("size", (1000, 4_000_000), ids=("kept", "unmapped"))
def test_memory_of_a_parameter(size):
    run(TRAINS, size)


def test_who_waits_for_many_goes_first():
    """Among eight threads there is hardly a moment in which none computes."""
    run(AMONG_MANY, 256)
