"""Who trains. prepare(task, batch, threads) -> a callable of a batch that makes one step and gives its losses, with
reset(task) back to the parameters of a task built anew. Raising is an answer: the peer is shown as failed.
"""

import os
import sys

from ..peers import Peer, versions  # noqa: F401
from .workload import seed


class Steps:
    """Steps of torch's program as it is written."""

    def __init__(self, task, **form):
        self.task = task
        self.optimizers = [task.optimizer(model.parameters(), **form) for model in task.models]
        self.step = task.step
        seed()

    def __call__(self, batch):
        return self.step(*self.task.models, *self.optimizers, *batch)

    def reset(self, task):
        """Parameters, buffers and what optimizers remember are what they were. Written in place, so that what is
        compiled stays what it is."""
        for model, first in zip(self.task.models, task.models):
            model.load_state_dict(first.state_dict())
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                for value in state.values():
                    value.zero_()


def eager(task, batch, threads):
    return Steps(task)


def fused(task, batch, threads):
    return Steps(task, fused=True)


def dycl(task, batch, threads):
    import dycl as library

    steps = Steps(task)
    for part in task.models + steps.optimizers:
        library.accelerate(part)
    return steps


def before(task, batch, threads):
    if "DYCL_BENCH_BEFORE" not in os.environ:
        raise OSError("DYCL_BENCH_BEFORE names no checkout")
    sys.path.insert(0, os.environ["DYCL_BENCH_BEFORE"])
    return dycl(task, batch, threads)


def same_draws():
    """Inductor draws torch's random numbers, else its losses could not be compared. torch has the switch for that."""
    import torch._inductor.config

    torch._inductor.config.fallback_random = True


def inductor(task, batch, threads):
    """As torch's tutorials do: the models and each optimizer's step."""
    import torch

    same_draws()
    steps = Steps(task)
    for model in task.models:
        model.compile()
    for optimizer in steps.optimizers:
        optimizer.step = torch.compile(optimizer.step)
    return steps


def inductor_step(task, batch, threads):
    import torch

    same_draws()
    steps = Steps(task)
    steps.step = torch.compile(task.step)
    return steps


def jax(task, batch, threads):
    # Read when the CPU's client starts.
    os.environ["PJRT_NPROC"] = os.environ["NPROC"] = str(threads)
    from . import jax_steps

    return jax_steps.prepare(task)


PEERS = [
    Peer("eager", "torch eager", eager),
    Peer("fused", "torch eager, fused=True", fused),
    Peer("dycl", "dycl", dycl),
    Peer("before", "dycl before", before),
    Peer("inductor", "torch.compile of model and optimizer", inductor),
    Peer("inductor-step", "torch.compile of the step", inductor_step),
    Peer("jax", "JAX, jit of an equal step", jax),
]
BY_NAME = {peer.name: peer for peer in PEERS}
