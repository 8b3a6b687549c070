"""Eager, `fused=True` and dycl in one process, in rounds of some 30 ms: no peers and no first steps, but seconds
instead of minutes, and smaller differences than between processes. Losses of the same step must agree."""

import statistics
import time

import numpy

from . import peers, workloads
from .job import COMPARED

FORMS = ("eager", "fused", "dycl")
WARM_UP = 3


def measure(workload, rounds, threads):
    """Microseconds a step of each round, by form."""
    steps, times, first = {}, {form: [] for form in FORMS}, workloads.build(workload.name)
    for form in FORMS:
        task = workloads.build(workload.name)
        steps[form] = peers.BY_NAME[form].prepare(task, task.batches[0], threads)
    each = COMPARED + 1
    for number in range(rounds + WARM_UP):
        losses = {}
        for form, step in steps.items():
            step.reset(first)
            peers.seed()
            began = time.perf_counter()
            found = [step(first.batches[k % len(first.batches)]) for k in range(each)]
            times[form].append((time.perf_counter() - began) / each * 1e6)
            losses[form] = found[: COMPARED + 1]
        for found in losses.values():
            if not numpy.allclose(found, losses["eager"], rtol=workload.tolerance, atol=0):
                raise AssertionError(f"{workload.name}: {losses}")
        if number == 0:
            each = max(len(first.batches), int(30_000 / times["eager"][0]))
    return {form: all_of[WARM_UP:] for form, all_of in times.items()}


def run(chosen, rounds, threads):
    import torch

    torch.set_num_threads(threads)
    print(f"{'':12}" + "".join(f"{form:>12}" for form in FORMS) + f"{'eager/dycl':>12}{'fused/dycl':>12}")
    for name in chosen:
        found = measure(workloads.BY_NAME[name], rounds, threads)
        median = {form: statistics.median(all_of) for form, all_of in found.items()}
        print(f"{name:12}" + "".join(f"{t:12.0f}" for t in median.values()) + "".join(
            f"{median[form] / median['dycl']:12.2f}" for form in ("eager", "fused")), flush=True)
