"""Eager, `fused=True` and dycl in one process, in rounds of some 30 ms: no peers and no first steps, but seconds
instead of minutes, and smaller differences than between processes. Losses of the same step must agree."""

import statistics
import time

import numpy

from . import peers, workloads
from .job import COMPARED

FORMS = ("eager", "fused", "dycl")
SETTLED = 64  # steps before those that count: plans are chosen, and torch was looked at


def a_round(workload, steps, first, each):
    """Microseconds a step of so many, by form; their losses agree."""
    times, losses = {}, {}
    for form, step in steps.items():
        step.reset(first)
        peers.seed()
        began = time.perf_counter()
        found = [step(first.batches[k % len(first.batches)]) for k in range(each)]
        times[form] = (time.perf_counter() - began) / each * 1e6
        losses[form] = found[: COMPARED + 1]
    for found in losses.values():
        if not numpy.allclose(found, losses["eager"], rtol=workload.tolerance, atol=0):
            raise AssertionError(f"{workload.name}: {losses}")
    return times


def measure(workload, rounds, threads):
    """Microseconds a step of each round, by form."""
    steps, first = {}, workloads.build(workload.name)
    for form in FORMS:
        task = workloads.build(workload.name)
        steps[form] = peers.BY_NAME[form].prepare(task, task.batches[0], threads)
    times = a_round(workload, steps, first, COMPARED + 1)
    each = max(len(first.batches), int(30_000 / times["eager"]))
    for _ in range((SETTLED - COMPARED - 1 + each - 1) // each):
        a_round(workload, steps, first, each)
    found = [a_round(workload, steps, first, each) for _ in range(rounds)]
    return {form: [times[form] for times in found] for form in FORMS}


def run(chosen, rounds, threads):
    import torch

    torch.set_num_threads(threads)
    print(f"{'':12}" + "".join(f"{form:>12}" for form in FORMS) + f"{'eager/dycl':>12}{'fused/dycl':>12}")
    for name in chosen:
        found = measure(workloads.BY_NAME[name], rounds, threads)
        median = {form: statistics.median(all_of) for form, all_of in found.items()}
        print(f"{name:12}" + "".join(f"{t:12.0f}" for t in median.values()) + "".join(
            f"{median[form] / median['dycl']:12.2f}" for form in ("eager", "fused")), flush=True)
