"""python -m benchmarks: every peer on every workload, one table. See --help."""

import argparse
import dataclasses
import datetime
import json
import os
import platform
import signal
import sys
import time


def choose(text, known, what):
    if not text:
        return list(known)
    chosen = []
    for name in text.split(","):
        found = [k for k in known if k == name] or [k for k in known if k.startswith(name)]
        if not found or not name:
            raise SystemExit(f"benchmarks: no {what} is called {name!r}; there are {', '.join(known)}")
        chosen += [k for k in found if k not in chosen]
    return chosen


def machine():
    cpu = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"cpu": cpu, "cpus": len(os.sched_getaffinity(0)), "python": platform.python_version(),
            "system": platform.platform()}


def end_cleanly():
    """Workers end without tearing their libraries down; Python's tracker cleans up after them and need not say so. A
    terminated run, too, stops its workers and removes its temporary files."""
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks",
                                     description="dycl against eager torch and other compilers")
    parser.add_argument("--only", metavar="A,B", help="these workloads (names or their beginnings)")
    parser.add_argument("--peers", metavar="A,B", help="these peers; eager is always measured")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--rounds", type=int, help="rounds per workload")
    parser.add_argument("--threads", type=int, default=2, help="threads for every peer (2)")
    parser.add_argument("--scaling", action="store_true",
                        help="also measure with one thread, and show what the threads gain")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON")
    parser.add_argument("--markdown", metavar="FILE",
                        help="write the tables there too; they always go to standard output")
    parser.add_argument("--list", action="store_true", help="show workloads and peers, and end")
    return parser.parse_args()


def main():
    options = arguments()
    try:
        from . import limit, peers, report, timing, workloads
    except ImportError as error:
        raise SystemExit(f"benchmarks: {error}. `make bench` installs what is needed.") from None

    if options.list:
        for item in workloads.WORKLOADS + peers.PEERS:
            print(f"{item.name:14} {item.title}")
        return
    names = choose(options.only, workloads.BY_NAME, "workload")
    chosen = choose(options.peers, peers.BY_NAME, "peer")
    if not options.peers and "DYCL_BENCH_BEFORE" not in os.environ:  # another checkout of dycl, where one is named
        chosen.remove("before")
    if options.threads < 1:
        raise SystemExit("benchmarks: --threads takes a positive number")
    plan = timing.QUICK if options.quick else timing.Plan()
    if options.rounds:
        plan = dataclasses.replace(plan, rounds=options.rounds)

    end_cleanly()
    begin = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    say("limits of the machine")
    run = {
        "day": datetime.date.today().isoformat(),
        "machine": machine(),
        "threads": options.threads,
        "versions": peers.versions(chosen),
        "plan": dataclasses.asdict(plan),
        "limit": limit.measure(options.threads),
        "results": [],
        "scaling": {},
    }
    try:
        for number, name in enumerate(names):
            prefix = f"{number + 1}/{len(names)} {name}: "
            results = timing.run(workloads.BY_NAME[name], chosen, options.threads, plan,
                                 lambda text: say(prefix + text))
            run["results"].append((workloads.BY_NAME[name], results))
            if options.scaling and options.threads > 1:
                single = timing.run(workloads.BY_NAME[name], chosen, 1, plan,
                                    lambda text: say(f"{prefix}1 thread: {text}"), limits=False)
                run["scaling"][name] = single
            write(run, options, report)
    except KeyboardInterrupt:
        say("interrupted; what was measured so far follows")
    print(report.markdown(run))


def write(run, options, report):
    """After every workload, so that an interrupted run leaves what it has."""
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report.as_json(run), file, indent=1)
            file.write("\n")
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(report.markdown(run))


if __name__ == "__main__":
    main()
