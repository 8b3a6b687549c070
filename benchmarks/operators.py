"""python -m benchmarks.operators: which operators are slower than eager when they are alone, forward and backward.

Each is a program of its own, recorded by force (DYCL_CHOOSE=0): in a real program dycl would leave to torch what is
faster there, and nobody would see a bad kernel. Calls of both alternate, and of each only the fastest counts: processor
time with one thread, else the clock's.
"""

import argparse
import os
import time
from dataclasses import dataclass

from .__main__ import choose

SHAPES = {"256x1024": (256, 1024), "4x16x64x64": (4, 16, 64, 64), "4x4096": (4, 4096), "4096x16": (4096, 16)}
LEAST, MOST = 5, 200  # calls of each
NEVER = float("inf")
ENTERING = 25  # microseconds that a call may take besides its operator: one that loses less tells of no kernel


@dataclass
class Row:
    name: str
    shape: str
    ours: list  # microseconds: forward and, where there is a gradient, backward
    eager: list
    torch: int  # operators that ran in torch

    @property
    def ratios(self):
        """Forward, backward (or None), both: above 1 where eager takes longer."""
        each = [theirs / ours for ours, theirs in zip(self.ours, self.eager)]
        return (*each, *[None] * (2 - len(each)), sum(self.eager) / sum(self.ours))

    def slower(self, bound):
        """Forward and backward, where that is slower by more than a call: (ratio, what)."""
        each = zip(self.ratios, ("forward", "backward"), self.ours, self.eager)
        return [(ratio, f"{self.name} {self.shape} {what}") for ratio, what, ours, theirs in each
                if ratio < bound and ours - theirs > ENTERING]

    def __str__(self):
        forward, backward, both = ("-" if ratio is None else f"{ratio:.2f}" for ratio in self.ratios)
        ours, eager = (" + ".join(f"{us:.0f}" for us in side) for side in (self.ours, self.eager))
        return f"| {self.name} | {self.shape} | {forward} | {backward} | {both} | {ours} | {eager} | {self.torch} |"


HEAD = ("| operator | shape | eager / dycl forward | backward | both | dycl, us | eager, us | in torch |\n"
        "|---|---|---:|---:|---:|---:|---:|---:|")


def measure(name, function, x, shape="", seconds=0.5, threads=1):
    """Fastest calls of the function and of what dycl makes of it; x learns where there is a gradient."""
    import torch

    import dycl

    clock = time.process_time_ns if threads == 1 else time.perf_counter_ns
    accelerated = dycl.accelerate(lambda x: function(x))  # of its own: a function of torch's may not be marked
    x = x.detach().clone().requires_grad_(x.is_floating_point())
    y = function(x)
    given = torch.randn_like(y) if y.requires_grad else None
    best, end, calls = [[NEVER] * (1 + y.requires_grad) for _ in range(2)], time.monotonic() + seconds, 0
    while calls < LEAST or (calls < MOST and time.monotonic() < end):
        for side, call in zip(best, (accelerated, function)):
            start = clock()
            y = call(x)
            y.data_ptr()  # what is pending is computed
            side[0] = min(side[0], clock() - start)
            if given is not None:
                start = clock()
                torch.autograd.grad(y, x, given)[0].data_ptr()
                side[1] = min(side[1], clock() - start)
        calls += 1
    ours, eager = ([ns / 1e3 for ns in side] for side in best)
    return Row(name, shape, ours, eager, dycl.stats(accelerated)["torch"])


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators",
                                     description="operators alone, recorded by force, beside eager")
    parser.add_argument("--only", metavar="A,B", help="these operators (names or their beginnings)")
    parser.add_argument("--shapes", metavar="A,B", help=f"of {', '.join(SHAPES)} (all)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of calls for each operator and shape (0.5)")
    parser.add_argument("--threads", type=int, default=1, help="for both (1)")
    parser.add_argument("--below", type=float, metavar="RATIO",
                        help="print only what is slower than this (0.97 leaves out noise)")
    return parser.parse_args()


def main():
    options = arguments()
    os.environ["DYCL_CHOOSE"] = os.environ["DYCL_PROFILE"] = "0"  # read when dycl is loaded; no cache of earlier runs
    try:
        import torch

        from . import operator_rows
    except ImportError as error:
        raise SystemExit(f"benchmarks.operators: {error}. `make bench` installs what is needed.") from None
    if options.threads < 1:
        raise SystemExit("benchmarks.operators: --threads takes a positive number")
    shapes = choose(options.shapes, list(SHAPES), "shape")
    names = choose(options.only, operator_rows.names(), "operator")
    torch.set_num_threads(options.threads)
    print(HEAD, flush=True)
    slower = []
    for shape in shapes:
        torch.manual_seed(0)
        rows = operator_rows.rows(SHAPES[shape])
        for name in names:
            if name not in rows:  # images only
                continue
            row = measure(name, *rows[name], shape, options.seconds, options.threads)
            found = row.slower(options.below or 1.0)
            slower += found
            if found or options.below is None:
                print(row, flush=True)
    print(f"\nbelow {options.below or 1:g} by more than {ENTERING} us:")
    for ratio, what in sorted(slower):
        print(f"{ratio:.2f} {what}")


if __name__ == "__main__":
    main()
