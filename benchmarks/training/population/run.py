"""python -m benchmarks.training --population: each program in a process of its own, so that one that crashes or hangs
is a line of the table."""

import json
import math
import os
import subprocess
import sys

from .program import ROUNDINGS, TOLERANCE

TIMEOUT = 240  # seconds, a program


def outcome(name, threads, rounds):
    """What one.py printed, or {"failed": why}."""
    command = [sys.executable, "-m", f"{__package__}.one", name, str(threads), str(rounds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {TIMEOUT} s"}
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [""]
        return {"failed": f"exit status {done.returncode}: {said[0]}"}
    return json.loads(done.stdout.splitlines()[-1])


def line(name, found):
    if "failed" in found:
        return f"{name:20}{found['failed']}"
    state = "equal" if agrees(found) else "DIFFER"
    return (f"{name:20}{found['eager']:12.0f}{found['dycl']:12.0f}{found['eager'] / found['dycl']:8.2f}"
            f"{found['apart']:12.1e}{found['own']:12.1e}  {state}")


def agrees(found):
    return found["apart"] <= max(TOLERANCE, ROUNDINGS * found["own"])


def run(chosen, threads, rounds, file=None):
    """Whether all programs ran and their losses agree."""
    print(f"{'':20}{'eager, us':>12}{'dycl, us':>12}{'ratio':>8}{'apart':>12}{'rounding':>12}  losses", flush=True)
    results = {}
    for name in chosen:
        results[name] = outcome(name, threads, rounds)
        print(line(name, results[name]), flush=True)
        if file:
            with open(file, "w", encoding="utf-8") as out:
                json.dump({"threads": threads, "rounds": rounds, "pid": os.getpid(), "results": results}, out, indent=1)
    ratios = {name: found["eager"] / found["dycl"] for name, found in results.items() if "failed" not in found}
    failed = [name for name in chosen if name not in ratios]
    apart = [name for name in ratios if not agrees(results[name])]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        lowest = sorted(ratios, key=ratios.get)[:5]
        print(f"\n{len(ratios)} programs, geometric mean {mean:.2f}; lowest: "
              + ", ".join(f"{name} {ratios[name]:.2f}" for name in lowest))
    for names, what in ((failed, "failed"), (apart, "losses differ")):
        if names:
            print(f"{what}: {', '.join(names)}")
    return not failed and not apart
