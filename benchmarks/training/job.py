"""What a worker's process does for training: see benchmarks/worker.py."""

import itertools
import time

from .. import limit, worker

COMPARED = 8  # steps after the first one, whose losses are compared
PEAK_STEPS = 6
SKEW = 1040  # floats
RENEWED = 16  # rounds of all batches after which training begins anew


def kilobytes(name):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))


def peak(call):
    """KiB of the process's own memory at most, during the call. Pages of libraries are read in when they are first
    needed and stay: they are left out."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    call()
    return kilobytes("VmHWM") - kilobytes("RssFile")


class Job(worker.Job):
    def __init__(self, workload, peer, threads, saved):
        import torch

        from . import peers

        torch.set_num_threads(threads)
        torch.optim.SGD([torch.zeros(1)])  # loads torch's compiler, a second that would hide the first steps
        self.workload, self.peer, self.threads = workload, peer, threads
        self.prepare = peers.BY_NAME[peer].prepare
        self.model = self.target()
        self.inputs = self.model.batches
        self.call, self.rounds = None, 0

    def target(self):
        from . import workloads

        return workloads.build(self.workload)

    def results(self):
        """The losses of the steps after the first."""
        import numpy

        batches = itertools.islice(itertools.cycle(self.inputs), 1, COMPARED + 1)
        return [numpy.atleast_1d(self.call(batch)).astype(numpy.float64) for batch in batches]

    def outputs(self):
        """The same steps from the same start, now that all is compiled and chosen."""
        from .workload import seed

        self.call.reset(self.model)
        seed()
        self.call(self.inputs[0])
        return super().outputs()

    def renew(self):
        """A faster peer makes more steps: gates would decide otherwise, gradients vanish, and the work would be
        another."""
        if self.rounds % RENEWED == 0:
            self.call.reset(self.model)
        self.rounds += 1

    def work(self):
        from . import workloads

        traffic = workloads.BY_NAME[self.workload].bytes
        return {"needed": traffic and {"kind": limit.UPDATED, "bytes": traffic(self.model), "flop": 0}}

    def memory(self):
        """KiB that the first step and those after it take at most, above what the process had before."""
        task = self.target()
        call = self.prepare(task, task.batches[0], self.threads)
        base = kilobytes("RssAnon")
        first = peak(lambda: call(task.batches[0])) - base
        later = peak(lambda: [call(batch) for batch in (task.batches * PEAK_STEPS)[1:PEAK_STEPS]]) - base
        return {"first": first, "later": later}

    def details(self):
        found = {}
        if self.peer == "dycl":
            import dycl

            parts = self.call.task.models
            found["stats"] = [worker.plain(dycl.stats(part)) for part in parts]
        return found


def job(peer):
    return Limit if peer == "limit" else Job


class Limit(limit.Job):
    """Reads and writes as much memory as a step of the optimizer alone must."""

    def first(self, needed):
        loops, count = limit.Machine(self.threads), int(needed["bytes"]) // 7 // 4
        # Not all at the same place of a page: the streams would meet in the same sets of the cache, a tenth slower.
        arrays = [limit.aligned(count + 4 * SKEW)[k * SKEW : k * SKEW + count] for k in range(4)]
        self.once = lambda: loops.update(*arrays)
        return {"shares": {"limit.c": needed["bytes"]}}

    def measure(self, warm, block, least):
        times, end = [], time.perf_counter() + block
        while time.perf_counter() < end or len(times) < least + 1:
            times.append(self.once() * 1e9)
        return {"ns": times[1:]}
