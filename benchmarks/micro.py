"""python -m benchmarks.micro: what recording costs, without what executing costs.

Inside a region an operator on a lazy tensor is written down, not executed; a result that nobody holds is never
computed. So a loop of such operators, timed inside the region, shows the recorder alone: on a trace that was seen
before (a hit of the TraceGraph) and on one that is new each time. Times are nanoseconds, the loop's own cost taken off;
figures are medians over regions.
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ["DYCL_CHOOSE"] = "0"  # the recorder is what is measured, also where torch would be the better choice

REPEAT = 20  # the expression stands this often in the loop's body
LOOPS = 10

OPERATORS = ["p + p", "2 * p", "p + w", "p.sigmoid()", "p.mean(-1, keepdim=True)", "torch.add(p, p)", "F.relu(p)"]
PLAIN = ["x.shape", "x.dtype", "x + 1", "x.relu()", "x[0]", "torch.relu(x)", "F.relu(x)", "torch.zeros(8)"]
OPERATOR_GOAL = 60
MODULE_GOAL = 120
WITHOUT_GOAL = ("torch.add(p, p)", "F.relu(p)")  # through torch's argument parser, which alone takes longer


def modules(nn):
    """Stock modules and the shape of their input."""
    return {
        "Linear(64, 64)": (nn.Linear(64, 64), (8, 64)),
        "LayerNorm(64)": (nn.LayerNorm(64), (8, 64)),
        "ReLU()": (nn.ReLU(), (8, 64)),
        "GELU()": (nn.GELU(), (8, 64)),
        "Conv2d(8, 8, 3)": (nn.Conv2d(8, 8, 3), (1, 8, 16, 16)),
        "BatchNorm2d(8)": (nn.BatchNorm2d(8), (1, 8, 16, 16)),
        "Embedding(100, 64)": (nn.Embedding(100, 64), None),
    }


def loop(expression, names):
    """A function of a tensor that answers the nanoseconds one evaluation of the expression took, and a result when kept
    is True.

    Without a result nothing is computed at the region's end, so the trace leaves nothing behind: it is new each time.
    """
    body = "\n".join(f"        {expression}" for _ in range(REPEAT))
    kept = "p + 1"
    source = f"""
def timed(x, clock, lazy, kept):
    p = x * 1.0 if lazy is True else x
    start = clock()
    for _ in range({LOOPS}):
{body}
    end = clock()
    empty = clock()
    for _ in range({LOOPS}):
        pass
    return (end - start - (clock() - empty)) / {LOOPS * REPEAT}, {kept} if kept else None
"""
    space = dict(names)
    exec(source, space)
    return space["timed"]


def figures(call, rounds):
    for _ in range(max(rounds // 4, 5)):
        call()
    found = sorted(call() for _ in range(rounds))
    return {"median_ns": statistics.median(found), "minimum_ns": found[0]}


def per_call(function, arguments, rounds, calls=200):
    clock = time.perf_counter_ns

    def block():
        start = clock()
        for _ in range(calls):
            function(*arguments)
        return (clock() - start) / calls

    return figures(block, max(rounds // 4, 5))


def measure(rounds):
    import torch
    import torch.nn.functional as F
    from torch import nn

    import dycl

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    clock = time.perf_counter_ns
    rows = []

    def row(kind, what, timed, x, goal, lazy=True):
        region, unseen = dycl.accelerate(timed), dycl.accelerate(timed)
        rows.append({
            "kind": kind,
            "what": what,
            "goal_ns": goal,
            "recorded": figures(lambda: region(x, clock, lazy, True)[0], rounds),
            "new": figures(lambda: unseen(x, clock, lazy, False)[0], rounds),
            "eager": figures(lambda: timed(x, clock, lazy, True)[0], max(rounds // 10, 3)),
        })

    x = torch.randn(8, 64)
    for expression in OPERATORS:
        timed = loop(expression, {"torch": torch, "F": F, "w": torch.randn(64)})
        row("operator", expression, timed, x, None if expression in WITHOUT_GOAL else OPERATOR_GOAL)
    for expression in PLAIN:
        row("plain tensor", expression, loop(expression, {"torch": torch, "F": F}), x, None, lazy=False)
    for name, (module, shape) in modules(nn).items():
        source = torch.randint(0, 100, (8, 16)) if shape is None else torch.randn(shape)
        # An index stays a plain tensor: multiplying by 1.0 would make it a float.
        row("module", name, loop("m(p)", {"m": module.eval()}), source, MODULE_GOAL, lazy=shape is not None)

    for what, function in (("returns its argument", lambda p: p), ("one operator, computed: p + p", lambda p: p + p)):
        rows.append({
            "kind": "region",
            "what": what,
            "goal_ns": None,
            "recorded": per_call(dycl.accelerate(function), (x,), rounds),
            "eager": per_call(function, (x,), rounds),
        })
    return rows


def markdown(rows):
    lines = ["| kind | what | dycl, seen before | its minimum | dycl, new | goal | eager |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        dycl, eager = row["recorded"], row["eager"]
        new = f"{row['new']['median_ns']:.0f}" if "new" in row else ""
        lines.append(f"| {row['kind']} | `{row['what']}` | {dycl['median_ns']:.0f} | {dycl['minimum_ns']:.0f} | {new} "
                     f"| {row['goal_ns'] or ''} "
                     f"| {eager['median_ns']:.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro",
                                     description="nanoseconds per recorded operator and module")
    parser.add_argument("--quick", action="store_true", help="fewer regions")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    try:
        rows = measure(60 if options.quick else 400)
    except ImportError as error:
        raise SystemExit(f"benchmarks.micro: {error}. `make bench` installs what is needed.") from None
    print(markdown(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    missed = [row["what"] for row in rows if row["goal_ns"] and row["recorded"]["median_ns"] > row["goal_ns"]]
    if missed:
        print(f"above the goal: {', '.join(missed)}", file=sys.stderr)


if __name__ == "__main__":
    main()
