"""What is trained. Every process builds the same models and the same batches, from a fixed seed."""

from ..workload import seed
from . import generative, library, optimizers, small, structures, transformer, vision

TRAINING = (small.WORKLOADS + transformer.WORKLOADS + vision.WORKLOADS + generative.WORKLOADS + structures.WORKLOADS
            + library.WORKLOADS)
OPTIMIZERS = optimizers.WORKLOADS
BY_NAME = {workload.name: workload for workload in TRAINING + OPTIMIZERS}


def build(name):
    seed()
    task = BY_NAME[name].build()
    task.name = name
    return task
