"""One process for one peer on one workload, told what to do through a pipe.

A process of its own makes the first call a real first call, keeps one peer's thread pool, allocator and monkey patches
away from another's timing, and turns a crash into a table entry. The parent lets only one worker work at a time.
"""

import copy
import importlib
import os
import sys
import time
import traceback

from . import limit


def main(connection, workload, peer, threads, saved, directory, jobs):
    file = os.open(os.path.join(directory, f"{workload}-{peer}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # Inductor keeps compiled code on disk: with it a first call would be somebody's second.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(directory, f"{workload}-{peer}")
    os.environ["DYCL_PROFILE"] = "0"  # and so with what dycl has measured
    try:
        if peer == "dycl":
            os.environ["PATH"] = ""  # what it needs of a compiler shows here: nothing
        serve(connection, importlib.import_module(jobs).job(peer)(workload, peer, threads, saved))
    except (EOFError, KeyboardInterrupt):
        pass
    except BaseException as error:  # the parent shows why, whatever it was
        traceback.print_exc()
        connection.send({"error": describe(error)})
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Some libraries hang or crash while they are torn down; nothing of this process is needed any more.
        os._exit(0)


def calibrate(workload, path):
    """The body of a process that only prepares what the workers will read."""
    from benchmarks import workloads

    workloads.save_calibrated(workload, path)


def describe(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)}"[:240]


def serve(connection, job):
    connection.send({"ready": True})
    while True:
        verb, *arguments = connection.recv()
        if verb == "stop":
            return
        connection.send(getattr(job, verb)(*arguments))


def job(peer):
    return limit.Job if peer == "limit" else Job


class Job:
    def __init__(self, workload, peer, threads, saved):
        import torch

        from benchmarks import peers, workloads

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.peer, self.threads = peer, threads
        self.prepare = peers.BY_NAME[peer].prepare
        self.model, self.inputs = workloads.build(workload, saved)
        self.call = None

    def first(self):
        """Seconds from a model and an input in hand to the first result; the results of all inputs."""
        target = self.target()
        start = time.perf_counter()
        self.call = self.prepare(target, self.inputs[0], self.threads)
        self.call(self.inputs[0])
        first = time.perf_counter() - start
        found = {"first_s": first, "outputs": self.results()}
        self.ends = [time.perf_counter() - start]
        self.start = start
        return found

    def target(self):
        return copy.deepcopy(self.model)  # the peer may change what it is given

    def settle(self, seconds, least):
        """Seconds from the same start to the end of each round of all inputs: least of them, and as many as begin in
        this time.

        What went by since the last round ended is left out: the results were sent and compared."""
        self.start = time.perf_counter() - self.ends[-1]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(self.ends) <= least:
            for x in self.inputs:
                self.call(x)
            self.ends.append(time.perf_counter() - self.start)
        return {"ends_s": self.ends, "inputs": len(self.inputs)}

    def renew(self):
        """Before each round that is measured."""

    def work(self):
        """What a call consists of, for its limit."""
        from benchmarks.peers import model_of

        many = model_of(self.model) is not self.model
        return {"needed": limit.needed(limit.work(self.model, model_of(self.model), self.inputs), many)}

    def results(self):
        import numpy

        return [numpy.array(self.call(x)) for x in self.inputs]

    def outputs(self):
        return {"outputs": self.results()}

    def measure(self, warm, block, least):
        """Nanoseconds a call, one figure for each round of all inputs: paths of different length must not decide the
        minimum. warm: seconds before, and two rounds at least; 0: none."""
        call, inputs, clock = self.call, self.inputs, time.perf_counter_ns
        end = clock() + int(warm * 1e9)
        rounds = 0
        while clock() < end or (warm and rounds < 2):
            self.renew()
            for x in inputs:
                call(x)
            rounds += 1
        times = []
        end = clock() + int(block * 1e9)
        while clock() < end or len(times) < least:
            self.renew()
            start = clock()
            for x in inputs:
                call(x)
            times.append((clock() - start) / len(inputs))
        return {"ns": times}

    def details(self):
        """What the peer has to say about itself, and the work that a call is."""
        found = {}
        if self.peer == "dycl":
            import dycl

            from benchmarks.peers import model_of

            found["stats"] = plain(dycl.stats(model_of(self.call)))
        if self.peer == "eager":
            from torch.utils.flop_counter import FlopCounterMode

            with FlopCounterMode(display=False) as counter:
                for x in self.inputs:
                    self.call(x)
            found["flop"] = counter.get_total_flops() / len(self.inputs)
        return found


def plain(value):
    """As JSON takes it."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)
