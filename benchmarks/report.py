"""Results as Markdown and as JSON."""

from . import peers, timing, workloads

HOW = """\
Every peer runs in a process of its own with {threads} threads and f32; the rounds interleave. *First* is the time from
a model and an input in hand to the first result, in a fresh process with no compiled code on disk, the peer's import
and compilation included; for eager and dycl the median over processes started: {starts}. *Steady* is the time from the
same cold start until rounds of all inputs take at most {steady} times what they take in the end; dycl's process has an
empty PATH, so there is no compiler for it. *Minimum* and *median* are over all rounds ({rounds}), each a pause, a
warm-up and a block of calls that takes {inputs} inputs in turn. *wrong*: the result for some input differs from eager's
by more than the tolerance; such a peer and one that failed take no part in "best peer"; so does one that is not ready
within {patience:.0f} s.

*Limit*: for generation the time in which the fastest reading loop (benchmarks/limit.c, its memory as large as the
weights of one step) reads the weights of every step of a call once, as float32; for large models called once the sum of
their products and convolutions alone, each on its shape by the fastest of MKL and oneDNN (through torch) and dycl's own
kernels. It is measured in the same rounds. Exporting, for generation in ONNX Runtime and OpenVINO, is
transformers.exporters' with the cache in the library's memory, the greedy loop around it ours; torch.compile's
generation is transformers' loop around the compiled model.
"""


def ratio(a, b):
    return a / b if a and b else None


def best_peer(results):
    """The fastest right peer other than dycl and eager, by its minimum."""
    candidates = [r for r in results.values() if r.peer not in ("eager", "dycl") and r.state == "right" and r.blocks]
    return min(candidates, key=lambda r: r.minimum, default=None)


def limit_of(results):
    """The limit's median, nanoseconds a call, or None."""
    found = results.get("limit")
    return found.median if found and found.state == "limit" else None


def scaling(results, single):
    """By peer that was right both times: how much longer a call takes with one thread, by minima; the best peer's
    name."""
    found = {}
    for name, result in results.items():
        other = single.get(name)
        if other and result.state == other.state == "right" and result.minimum and other.minimum:
            found[name] = other.minimum / result.minimum
    best = best_peer({name: result for name, result in results.items() if name in found})
    return found, best.peer if best else None


def summary(workload, results):
    """What dycl came to; None where it was not measured."""
    eager, dycl, best, compiled = results["eager"], results.get("dycl"), best_peer(results), results.get("inductor")
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
        "limit": results["limit"].reason if limit_of(results) else None,
        "dycl_to_limit_median": ratio(dycl.median, limit_of(results)) if right else None,
        "first_call_s": dycl.first_s,
        "steady_s": dycl.settled_s,
        "steady_of_inductor_s": compiled.settled_s if compiled else None,
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
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" if k == 0 else "---:" for k in range(len(header)))
             + "|"]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def markdown(run):
    lines = ["# dycl benchmark", ""]
    machine = run["machine"]
    lines += [f"{machine['cpu']}, {machine['cpus']} processors, {run['threads']} threads used, Python "
              f"{machine['python']}, "
              + ", ".join(f"{name} {version or 'not installed'}" for name, version in run["versions"].items()) + ".",
              ""]
    limit = run["limit"]
    if "error" in limit:
        lines += [f"The machine's figures could not be had: {limit['error']}", ""]
    elif limit:
        lines += [f"In this run: multiply-adds {limit['fma_gflops']:.0f} GFLOP/s, matrix product of 1024 (MKL) "
                  f"{limit['gemm_gflops']:.0f} GFLOP/s, reading memory {limit['read_gbytes']:.1f} GB/s, "
                  f"copying {limit['copy_gbytes']:.1f} GB/s.", ""]
    lines += [HOW.format(threads=run["threads"], rounds=run["plan"]["rounds"], starts=run["plan"]["starts"],
                         steady=timing.STEADY, patience=run["plan"]["patience"], inputs=f"up to {workloads.INPUTS}")]
    rows = []
    for workload, results in run["results"]:
        found = summary(workload, results)
        if not found:
            continue
        best = best_peer(results)
        flop = results["eager"].details.get("flop")
        dycl = results["dycl"]
        speed = flop / dycl.minimum if flop and dycl.minimum and found["state"] == "right" else None
        rows.append([workload.title, ms(results["eager"].median),
                     ms(dycl.median) if found["state"] == "right" else found["state"],
                     times(found["eager_to_dycl_median"]), times(found["eager_to_dycl_minimum"]), f"{found['goal']}x",
                     "yes" if found["reached"] else "no",
                     f"{times(found['best_peer_to_dycl_minimum'])} ({best.peer} {ms(best.minimum)})" if best else "-",
                     number(speed), f"{number(found['dycl_to_limit_median'])} of {ms(limit_of(results))} ms"
                     if found["limit"] else "-",
                     f"{number(found['first_call_s'])} / {number(found['first_call_allowed_s'])}",
                     f"{number(found['steady_s'])} / {number(found['steady_of_inductor_s'])}"])
    if rows:
        lines += table(["workload", "eager median, ms", "dycl median, ms", "eager / dycl, medians",
                        "eager / dycl, minima", "goal", "reached",
                        "best peer / dycl, minima", "dycl GFLOP/s", "dycl / limit", "first call / allowed, s",
                        "steady / torch.compile's, s"], rows) + [""]
    if run["scaling"]:
        lines += scaling_table(run) + [""]
    for workload, results in run["results"]:
        eager = results["eager"]
        rows = []
        for result in results.values():
            state = result.state if not result.reason else f"{result.state}: {result.reason}"
            title = peers.BY_NAME[result.peer].title if result.peer in peers.BY_NAME else "limit"
            rows.append([title, number(result.first_s), number(result.settled_s), ms(result.minimum), ms(result.median),
                         times(ratio(eager.minimum, result.minimum)), times(ratio(eager.median, result.median)),
                         number(result.error, 2), state])
        lines += [f"## {workload.title}", ""]
        lines += table(["peer", "first, s", "steady, s", "minimum, ms", "median, ms", "eager / it, minima",
                        "eager / it, medians", "error", "result"], rows)
        lines += [""]
    return "\n".join(lines)


def scaling_table(run):
    """How much faster the peers become with all threads; dycl's figure is held against that of the fastest other
    peer."""
    names = [name for name in peers.BY_NAME if any(name in results for _, results in run["results"])]
    rows = []
    for workload, results in run["results"]:
        if workload.name not in run["scaling"]:
            continue
        found, best = scaling(results, run["scaling"][workload.name])
        enough = "yes" if "dycl" in found and best and found["dycl"] >= found[best] else "no" if "dycl" in found \
            and best else "-"
        rows.append([workload.title, *(times(found.get(name)) for name in names), best or "-", enough])
    return [f"## From 1 thread to {run['threads']}: time with one thread / time with {run['threads']}, minima",
            ""] + table(
        ["workload", *names, "fastest peer", "dycl at least as it"], rows)


def as_json(run):
    found = {key: value for key, value in run.items() if key not in ("results", "scaling")}
    found["workloads"] = {}
    for workload, results in run["results"]:
        entry = {"title": workload.title, "tolerance": workload.tolerance, "dycl": summary(workload, results),
                 "peers": {}}
        for result in results.values():
            entry["peers"][result.peer] = peer_as_json(result)
        if workload.name in run["scaling"]:
            entry["scaling"] = scaling(results, run["scaling"][workload.name])[0]
        found["workloads"][workload.name] = entry
    return found


def peer_as_json(result):
    return {
        "state": result.state,
        "reason": result.reason,
        "first_s": result.first_s,
        "settled_s": result.settled_s,
        "minimum_ns": result.minimum,
        "median_ns": result.median,
        "error": finite(result.error),
        "calls_timed": len(result.times),
        "round_minimum_ns": [min(block) for block in result.blocks],
        "round_median_ns": [sorted(block)[len(block) // 2] for block in result.blocks],
        "details": result.details,
    }


def finite(value):
    return value if value is None or value < float("inf") else "infinite"
