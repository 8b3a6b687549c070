"""A run of training as Markdown and as JSON."""

from .. import report, timing
from ..report import ms, number, ratio, table, times
from . import job, peers

HOW = """\
A step is a whole training step, from the batch to the number of its loss: forward pass, backward pass and optimizer (or
the optimizer alone). Every peer runs in a process of its own with {threads} threads and f32; {rounds} rounds
interleave. *First* is the time from a model and a batch in hand to the first loss, in a fresh process with no compiled
code on disk, the peer's import and compilation included; for eager and dycl the median over processes started:
{starts}. *Steady* is the time from the same start until steps take at most {steady} times what they take in the end.
*Minimum* and *median* are of a step; every batch counts alike. Training begins anew every {renewed} rounds of batches,
so that a faster peer does not train further. *Error*: the largest difference of a loss from eager's, as a part of it,
over the first {compared} steps, and over the same steps after all rounds; *wrong* is what differs by more than the
tolerance. A peer that is not ready within {patience:.0f} s has failed. *Peak*: resident memory (without pages of files,
as libraries' code) above what the process had when model and optimizer were made, at most, in the first step and in the
{later} after it, measured in processes of their own. *Limit*: the time in which a loop (benchmarks/limit.c) reads and
writes what the optimizer must, measured in the same rounds.

torch.compile draws torch's random numbers (`fallback_random`), else losses could not be compared. JAX runs jitted steps
that are written by hand, equal to torch's, with donated state and the same initial parameters.
"""


def best_peer(results):
    """The fastest right one of those that are neither torch's own forms nor dycl."""
    found = [r for r in results.values() if r.peer not in ("eager", "fused", "dycl", "before") and r.state == "right"
             and r.blocks]
    return min(found, key=lambda r: r.median, default=None)


def mib(result, step):
    found = result.details.get("peak_kib") if result else None
    return found[step] / 1024 if found else None


def row(workload, results):
    eager, fused, dycl, best = results["eager"], results.get("fused"), results.get("dycl"), best_peer(results)
    right = dycl is not None and dycl.state == "right" and bool(dycl.blocks)
    ours = dycl.median if right else None
    limit = report.limit_of(results)
    return [workload.title, ms(eager.median), ms(fused.median) if fused and fused.state == "right" else "-",
            ms(ours) if right else dycl.state if dycl else "-", times(ratio(eager.median, ours)),
            times(ratio(fused.median, ours)) if fused and fused.state == "right" else "-",
            f"{times(ratio(best.median, ours))} ({best.peer} {ms(best.median)})" if best else "-",
            f"{number(ratio(ours, limit))} of {ms(limit)} ms" if limit else "-",
            f"{ms(dycl.first_s and dycl.first_s * 1e9) if dycl else '-'} / {ms(eager.first_s and eager.first_s * 1e9)}",
            *(f"{number(mib(dycl, step))} / {number(mib(eager, step))}" for step in ("first", "later"))]


def markdown(run):
    machine, plan = run["machine"], run["plan"]
    lines = ["# Training", "",
             f"{machine['cpu']}, {machine['cpus']} processors, {run['threads']} threads used, Python "
             f"{machine['python']}, "
             + ", ".join(f"{name} {version or 'not installed'}" for name, version in run["versions"].items()) + ".", "",
             HOW.format(threads=run["threads"], rounds=plan["rounds"], starts=plan["starts"], steady=timing.STEADY,
                        renewed=job.RENEWED, compared=job.COMPARED + 1, patience=plan["patience"],
                        later=job.PEAK_STEPS - 1)]
    lines += table(["workload", "eager, ms", "fused, ms", "dycl, ms", "eager / dycl", "fused / dycl",
                    "best peer / dycl", "dycl / limit", "first step, ms: dycl / eager",
                    "peak of the first step, MiB: dycl / eager", "of later steps"],
                   [row(workload, results) for workload, results in run["results"]]) + [""]
    for workload, results in run["results"]:
        eager, rows = results["eager"], []
        for result in results.values():
            state = result.state if not result.reason else f"{result.state}: {result.reason}"
            title = peers.BY_NAME[result.peer].title if result.peer in peers.BY_NAME else "limit"
            rows.append([title, number(result.first_s), number(result.settled_s), ms(result.minimum),
                         ms(result.median), times(ratio(eager.median, result.median)), number(result.error, 2), state])
        lines += [f"## {workload.title}", ""] + table(
            ["peer", "first, s", "steady, s", "minimum, ms", "median, ms", "eager / it, medians", "error", "result"],
            rows) + [""]
    return "\n".join(lines)


def as_json(run):
    found = {key: value for key, value in run.items() if key != "results"}
    found["workloads"] = {workload.name: {"title": workload.title, "tolerance": workload.tolerance,
                                          "peers": {r.peer: report.peer_as_json(r) for r in results.values()}}
                          for workload, results in run["results"]}
    return found
