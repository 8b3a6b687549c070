"""The measuring: one worker process per peer, all alive at once, working one at a time in interleaved rounds.

A round visits every peer: pause (so that whatever the last one left spinning has come to rest), warm up, then time a
block of calls. Interleaving spreads a slow minute of the machine over all peers; the order turns from round to round.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field

import numpy

from . import worker


@dataclass(frozen=True)
class Plan:
    rounds: int = 7
    pause: float = 0.25  # seconds
    warm: float = 0.15
    block: float = 0.4
    least: int = 2  # timings in a block, however slow the call
    starts: int = 3  # fresh processes in which the first call of eager and of dycl is timed; the others: one
    settle: float = 3.0  # seconds of calls right after the first, in which the steady state is looked for
    patience: float = 600.0  # seconds for one answer


QUICK = Plan(rounds=3, pause=0.15, warm=0.05, block=0.15, least=1, starts=1, settle=1.5, patience=180.0)
STEADY = 1.2  # a round is as in the steady state when it takes at most so many times as long
SETTLING = 3  # rounds after the first that are looked at, however long they take


@dataclass
class Result:
    peer: str
    state: str = "right"  # right, wrong, failed; limit: no peer
    reason: str = ""
    first_s: float = None
    error: float = None  # largest difference from eager, as a part of eager's largest absolute value
    ends: list = field(default_factory=list)  # seconds from a cold start to the end of each round of all inputs
    inputs: int = 1
    blocks: list = field(default_factory=list)  # nanoseconds a call, one list per round
    details: dict = field(default_factory=dict)

    @property
    def times(self):
        return [value for block in self.blocks for value in block]

    @property
    def minimum(self):
        return min(self.times, default=None)

    @property
    def median(self):
        return statistics.median(self.times) if self.blocks else None

    @property
    def settled_s(self):
        """Seconds from a cold start to the first of three rounds of inputs whose median takes as long as in the steady
        state, or None."""
        if not self.ends or not self.blocks:
            return None
        allowed = STEADY * self.median / 1e9 * self.inputs
        rounds = [end - start for start, end in zip([0.0] + self.ends, self.ends)]
        for k in range(1, len(rounds)):
            if statistics.median(rounds[k : k + 3]) <= allowed and rounds[k] <= allowed:
                return self.ends[k - 1]
        return None

    def fail(self, reason):
        self.state, self.reason = "failed", reason


class Lost(Exception):
    """The worker gave no result; the text says why."""


class Worker:
    def __init__(self, workload, peer, threads, saved, directory, patience, jobs="benchmarks.worker"):
        self.patience = patience
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # Read when torch and the others are loaded, hence before the process starts. torch sets the threads of its own
        # pool again.
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.process = context.Process(target=worker.main,
                                       args=(theirs, workload, peer, threads, saved, directory, jobs))
        self.process.start()
        theirs.close()
        try:
            self.answer()
        except Lost:
            self.stop()
            raise

    def answer(self):
        if not self.connection.poll(self.patience):
            raise Lost(f"no answer within {self.patience:.0f} s")
        try:
            answer = self.connection.recv()
        except EOFError:
            self.process.join(5)
            raise Lost(f"process died, exit code {self.process.exitcode}") from None
        if "error" in answer:
            raise Lost(answer["error"])
        return answer

    def ask(self, *request):
        try:
            self.connection.send(request)
        except OSError:
            raise Lost("process died") from None
        return self.answer()

    def stop(self):
        try:
            self.connection.send(("stop",))
        except OSError:
            pass
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(5)
        self.connection.close()


def first_calls(workload, name, threads, saved, directory, plan):
    """Seconds of first calls in processes that are given up again: the two that are compared, where noise would
    decide."""
    found = []
    for _ in range(plan.starts - 1 if name in ("eager", "dycl") else 0):
        process = None
        try:
            process = Worker(workload.name, name, threads, saved, directory, plan.patience, workload.jobs)
            found.append(process.ask("first")["first_s"])
        finally:
            if process:
                process.stop()
    return found


def calibrated(workload, directory):
    if not workload.calibrate:
        return None
    path = os.path.join(directory, f"{workload.name}.pt")
    process = multiprocessing.get_context("spawn").Process(target=worker.calibrate, args=(workload.name, path))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"benchmarks: the workload {workload.name} could not be prepared (exit code "
                         f"{process.exitcode})")
    return path


def difference(expected, got):
    """Largest error over all inputs as a part of eager's largest absolute value; infinity where it cannot be
    compared."""
    largest = 0.0
    for want, have in zip(expected, got):
        if want.shape != have.shape or want.dtype != have.dtype:
            return float("inf")
        scale = float(numpy.abs(want).max(initial=0.0)) or 1.0
        error = float(numpy.abs(want.astype(numpy.float64) - have).max(initial=0.0)) / scale
        if not error <= largest:  # also true for NaN
            largest = error if error == error else float("inf")
    return largest


def judge(result, expected, answer, tolerance, when):
    error = difference(expected, answer["outputs"])
    result.error = max(result.error or 0.0, error)
    if error > tolerance and result.state == "right":
        result.state = "wrong"
        result.reason = f"{when} differs from eager by {error:.2g} of its largest value (allowed {tolerance:g})"


def start_limit(workload, results, workers, threads, saved, directory, plan, say):
    """A process that takes part in the rounds and does only what the workload cannot do without; see limit.py."""
    try:
        needed = workers["eager"].ask("work")["needed"]
    except Lost as lost:
        lose(results, workers, "eager", lost, say)
        return
    if not needed:
        return
    results["limit"] = Result("limit", state="limit", reason=needed["kind"])
    try:
        workers["limit"] = Worker(workload.name, "limit", threads, saved, directory, plan.patience, workload.jobs)
        results["limit"].details = {**workers["limit"].ask("first", needed), "bytes": needed["bytes"],
                                    "flop": needed["flop"]}
        say(f"limit: {needed['kind']}")
    except Lost as lost:
        lose(results, workers, "limit", lost, say)


def run(workload, peers, threads, plan, say, limits=True):
    """Results by peer, eager first: its results are what the others are held against."""
    names = ["eager"] + [name for name in peers if name != "eager"]
    results = {name: Result(name) for name in names}
    workers, expected = {}, None
    with tempfile.TemporaryDirectory(prefix="dycl-bench-", ignore_cleanup_errors=True) as directory:
        try:
            saved = calibrated(workload, directory)
            for name in names:
                result = results[name]
                try:
                    earlier = first_calls(workload, name, threads, saved, directory, plan)
                    workers[name] = Worker(workload.name, name, threads, saved, directory, plan.patience, workload.jobs)
                    answer = workers[name].ask("first")
                    result.first_s = statistics.median(earlier + [answer["first_s"]])
                    if name == "eager":
                        expected = answer["outputs"]
                        result.error = 0.0
                    else:
                        judge(result, expected, answer, workload.tolerance, "the first result")
                    answer = workers[name].ask("settle", plan.settle, SETTLING)
                    result.ends, result.inputs = answer["ends_s"], answer["inputs"]
                    say(f"{name}: first call {result.first_s:.2f} s, {result.state} {result.reason}")
                except Lost as lost:
                    lose(results, workers, name, lost, say)
                    if name == "eager":
                        return results
            if limits:
                start_limit(workload, results, workers, threads, saved, directory, plan, say)
            for number in range(plan.rounds):
                order = list(workers)
                shift = number % len(order)
                for name in order[shift:] + order[:shift]:
                    try:
                        time.sleep(plan.pause)
                        answer = workers[name].ask("measure", plan.warm, plan.block, plan.least)
                        results[name].blocks.append(answer["ns"])
                    except Lost as lost:
                        lose(results, workers, name, lost, say)
                shown = (f"{name} {results[name].minimum / 1e6:.4g}" for name in results if results[name].blocks)
                say(f"round {number + 1}/{plan.rounds}, best so far in ms: " + ", ".join(shown))
            if "limit" in workers:
                workers.pop("limit").stop()
            for name in list(workers):
                try:
                    # Steady state is another path through dycl and others than the first calls were: check it too.
                    judge(results[name], expected, workers[name].ask("outputs"), workload.tolerance,
                          "the result in steady state")
                except Lost as lost:
                    lose(results, workers, name, lost, say)
                    continue
                try:
                    results[name].details = workers[name].ask("details")
                except Lost as lost:  # statistics are not what is measured
                    results[name].details = {"error": str(lost)}
        finally:
            for process in workers.values():
                process.stop()
    return results


def lose(results, workers, name, lost, say):
    results[name].fail(str(lost))
    if name in workers:
        workers.pop(name).stop()
    say(f"{name}: failed: {lost}")
