"""The garbage collector is the program's: what is computed without the GIL does not keep it off, for nobody."""

import gc
import os
import threading
import time

import dycl
import pytest
import torch
from torch import nn


def looks_up_what_it_computes():
    """An index is computed while the embedding is recorded."""
    layers = nn.Sequential(*[nn.Linear(1200, 1200) for _ in range(3)]).eval()
    embedding = nn.Embedding(1200, 64)
    return lambda x: embedding((layers(x).mean(-1) * 3).abs().long().clamp(0, 1199)).sum()


def computes():
    layers = nn.Sequential(*[nn.Linear(1200, 1200) for _ in range(3)]).eval()
    return lambda x: layers(x).sum()


@pytest.fixture
def running():
    """A thread that calls a model all the time."""
    started = []

    def start(make):
        fast, x = dycl.accelerate(make()), torch.randn(192, 1200)
        stop = threading.Event()

        def work():
            with torch.no_grad():
                while not stop.is_set():
                    fast(x)

        with torch.no_grad():
            for _ in range(20):
                fast(x)
        thread = threading.Thread(target=work)
        thread.start()
        started.append((stop, thread))
        time.sleep(0.02)

        def end():
            stop.set()
            thread.join()

        return end

    yield start
    for stop, thread in started:
        stop.set()
        thread.join()
    gc.enable()


@pytest.mark.parametrize("make", (computes, looks_up_what_it_computes))
def test_what_a_thread_sees_and_says_while_another_computes(make, running):
    end = running(make)
    seen = []
    for _ in range(60):
        time.sleep(0.002)
        seen.append(gc.isenabled())
    assert sum(seen) >= 55  # what is recorded holds it for microseconds
    gc.disable()
    time.sleep(0.05)
    assert not gc.isenabled()
    end()
    assert not gc.isenabled()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_children(running):
    running(looks_up_what_it_computes)
    for _ in range(8):
        time.sleep(0.011)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(pid, 0)[1] == 0
