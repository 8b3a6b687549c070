"""Results as Markdown and as JSON."""

from . import peers, workloads

HOW = """\
Every peer runs in a process of its own with {threads} threads and f32; the rounds interleave. *First* is the time from a model and
an input in hand to the first result, in a fresh process with no compiled code on disk, the peer's import and compilation
included; for eager and dycl the median over processes started: {starts}. *Minimum* and *median* are over all rounds ({rounds}), each a
pause, a warm-up and a block of calls that takes {inputs} inputs in turn. *wrong*: the result for some input differs from eager's by more than the tolerance; such a peer and one that failed
take no part in "best peer".
"""


def ratio(a, b):
    return a / b if a and b else None


def best_peer(results):
    """The fastest right peer other than dycl and eager, by its minimum."""
    candidates = [r for r in results.values() if r.peer not in ("eager", "dycl") and r.state == "right" and r.blocks]
    return min(candidates, key=lambda r: r.minimum, default=None)


def summary(workload, results):
    """What dycl came to; None where it was not measured."""
    eager, dycl, best = results["eager"], results.get("dycl"), best_peer(results)
    if dycl is None:
        return None
    right = dycl.state == "right" and bool(dycl.blocks)
    goal = workload.goal or workloads.NO_SLOWER
    found = {
        "state": dycl.state,
        "reason": dycl.reason,
        "goal": goal,
        "eager_to_dycl_minimum": ratio(eager.minimum, dycl.minimum) if right else None,
        "eager_to_dycl_median": ratio(eager.median, dycl.median) if right else None,
        "best_peer": best.peer if best else None,
        "best_peer_to_dycl_minimum": ratio(best.minimum, dycl.minimum) if right and best else None,
        "first_call_s": dycl.first_s,
        "first_call_allowed_s": 1.5 * eager.first_s + 0.3 if eager.first_s else None,
    }
    found["reached"] = bool(right and (found["eager_to_dycl_median"] or 0) >= goal)
    return found


def number(value, digits=3):
    if value is None:
        return "-"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text else text


def ms(nanoseconds):
    return number(nanoseconds / 1e6, 4) if nanoseconds else "-"


def times(value):
    return f"{number(value)}x" if value else "-"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" if k == 0 else "---:" for k in range(len(header))) + "|"]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def markdown(run):
    lines = ["# dycl benchmark", ""]
    machine = run["machine"]
    lines += [f"{machine['cpu']}, {machine['cpus']} processors, {run['threads']} threads used, Python {machine['python']}, "
              + ", ".join(f"{name} {version or 'not installed'}" for name, version in run["versions"].items()) + ".", ""]
    limit = run["limit"]
    if limit:
        lines += [f"In this run: matrix product {limit['gemm_gflops']:.0f} GFLOP/s, reading memory {limit['read_gbytes']:.1f} GB/s, "
                  f"copying {limit['copy_gbytes']:.1f} GB/s.", ""]
    lines += [HOW.format(threads=run["threads"], rounds=run["plan"]["rounds"], starts=run["plan"]["starts"], inputs=f"up to {workloads.INPUTS}")]
    rows = []
    for workload, results in run["results"]:
        found = summary(workload, results)
        if not found:
            continue
        best = best_peer(results)
        flop = results["eager"].details.get("flop")
        dycl = results["dycl"]
        speed = flop / dycl.minimum if flop and dycl.minimum and found["state"] == "right" else None
        rows.append([workload.title, ms(results["eager"].median), ms(dycl.median) if found["state"] == "right" else found["state"],
                     times(found["eager_to_dycl_median"]), times(found["eager_to_dycl_minimum"]), f"{found['goal']}x",
                     "yes" if found["reached"] else "no",
                     f"{times(found['best_peer_to_dycl_minimum'])} ({best.peer} {ms(best.minimum)})" if best else "-",
                     number(speed), f"{number(found['first_call_s'])} / {number(found['first_call_allowed_s'])}"])
    if rows:
        lines += table(["workload", "eager median, ms", "dycl median, ms", "eager / dycl, medians", "eager / dycl, minima", "goal", "reached",
                        "best peer / dycl, minima", "dycl GFLOP/s", "first call / allowed, s"], rows) + [""]
    for workload, results in run["results"]:
        eager = results["eager"]
        rows = []
        for result in results.values():
            state = result.state if not result.reason else f"{result.state}: {result.reason}"
            rows.append([peers.BY_NAME[result.peer].title, number(result.first_s), ms(result.minimum), ms(result.median),
                         times(ratio(eager.minimum, result.minimum)), times(ratio(eager.median, result.median)),
                         number(result.error, 2), state])
        lines += [f"## {workload.title}", ""]
        lines += table(["peer", "first, s", "minimum, ms", "median, ms", "eager / it, minima", "eager / it, medians", "error", "result"], rows)
        lines += [""]
    return "\n".join(lines)


def as_json(run):
    found = {key: value for key, value in run.items() if key != "results"}
    found["workloads"] = {}
    for workload, results in run["results"]:
        entry = {"title": workload.title, "tolerance": workload.tolerance, "dycl": summary(workload, results), "peers": {}}
        for result in results.values():
            entry["peers"][result.peer] = {
                "state": result.state,
                "reason": result.reason,
                "first_s": result.first_s,
                "minimum_ns": result.minimum,
                "median_ns": result.median,
                "error": finite(result.error),
                "calls_timed": len(result.times),
                "round_minimum_ns": [min(block) for block in result.blocks],
                "round_median_ns": [sorted(block)[len(block) // 2] for block in result.blocks],
                "details": result.details,
            }
        found["workloads"][workload.name] = entry
    return found


def finite(value):
    return value if value is None or value < float("inf") else "infinite"
