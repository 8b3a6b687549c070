"""python -m benchmarks.slices: dycl and one other peer in short slices that alternate, and how far the ratio is known.

On a machine whose speed wanders by tens of percent within seconds, rounds of seconds do not decide about 2%. Slices of
40 ms do: the two of a pair meet the same machine. Two processes of one program differ by several percent, too (where
their memory lies, which kernels they found fastest), so that some are started one after another. The median over starts
of the median of ratios has an interval, found by resampling starts and, in each, pairs (Efron, "Bootstrap Methods:
Another Look at the Jackknife", section 2).
"""

import argparse
import os
import random
import statistics
import tempfile
import time

from .__main__ import choose, end_cleanly

SLICE = 0.04  # seconds, or one round of the inputs where that takes longer
REST = 0.004  # seconds between slices: the other's pool of threads has come to rest
RESAMPLED = 1000
OUTER = 0.025  # of the resampled medians, left out at each end


def middle_of(starts):
    return statistics.median(statistics.median(ratios) for ratios in starts)


def interval(starts, rng):
    """The middle of ratios (a list for each start), and the ends of its 95% interval."""
    def again(items):
        return rng.choices(items, k=len(items))

    middles = sorted(middle_of([again(ratios) for ratios in again(starts)]) for _ in range(RESAMPLED))
    outer = int(OUTER * RESAMPLED)
    return middle_of(starts), middles[outer], middles[-1 - outer]


def compare(workload, peer, threads, seconds, rng):
    """Slices of two new processes: nanoseconds a call of dycl, and of the peer, pair by pair."""
    from . import timing

    workers, times = {}, {"dycl": [], peer: []}
    with tempfile.TemporaryDirectory(prefix="dycl-bench-", ignore_cleanup_errors=True) as directory:
        try:
            saved = timing.calibrated(workload, directory)
            for name in times:
                workers[name] = timing.Worker(workload.name, name, threads, saved, directory, timing.QUICK.patience,
                                               workload.jobs)
                workers[name].ask("first")
                workers[name].ask("settle", timing.Plan.settle, timing.SETTLING)
            end = time.monotonic() + seconds
            while time.monotonic() < end or len(times["dycl"]) < 3:
                for name in rng.sample(list(times), 2):
                    time.sleep(REST)
                    times[name].append(statistics.median(workers[name].ask("measure", 0.0, SLICE, 1)["ns"]))
        finally:
            for worker in workers.values():
                worker.stop()
    return times["dycl"], times[peer]


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slices",
                                     description="dycl and one other peer in short alternating slices")
    parser.add_argument("--only", metavar="A,B", help="these workloads (names or their beginnings)")
    parser.add_argument("--training", action="store_true", help="the training workloads")
    parser.add_argument("--optimizer", action="store_true", help="steps of AdamW alone")
    parser.add_argument("--peer", help="the other (before, if DYCL_BENCH_BEFORE names a checkout, else eager)")
    parser.add_argument("--starts", type=int, default=4, help="pairs of processes for each workload (4)")
    parser.add_argument("--seconds", type=float, default=12.0, help="of slices for each start (12)")
    parser.add_argument("--threads", type=int, default=2, help="threads for both (2)")
    return parser.parse_args()


def main():
    options = arguments()
    if options.training or options.optimizer:
        from .training import peers, workloads

        group = workloads.OPTIMIZERS if options.optimizer else workloads.TRAINING
    else:
        from . import peers, workloads

        group = workloads.WORKLOADS
    names = choose(options.only, [workload.name for workload in group], "workload")
    peer = options.peer or ("before" if "DYCL_BENCH_BEFORE" in os.environ else "eager")
    if peer == "dycl" or peer not in peers.BY_NAME or min(options.threads, options.starts) < 1:
        raise SystemExit("benchmarks.slices: --peer takes another peer than dycl, --threads and --starts take positive "
                         "numbers")
    end_cleanly()
    rng = random.Random(1)
    print(f"| workload | dycl median, ms | {peer} median, ms | {peer} / dycl | 95% interval | starts | pairs |\n"
          "|---|---:|---:|---:|---:|---|---:|", flush=True)
    for name in names:
        starts = [compare(workloads.BY_NAME[name], peer, options.threads, options.seconds, rng)
                  for _ in range(options.starts)]
        ratios = [[theirs / ours for ours, theirs in zip(*start)] for start in starts]
        middle, low, high = interval(ratios, rng)
        ours, theirs = (statistics.median(time for start in starts for time in start[k]) / 1e6 for k in (0, 1))
        shown = ", ".join(f"{statistics.median(r):.3f}" for r in ratios)
        print(f"| {name} | {ours:.4g} | {theirs:.4g} | {middle:.3f} | {low:.3f} to {high:.3f} | {shown} | "
              f"{sum(map(len, ratios))} |", flush=True)


if __name__ == "__main__":
    main()
