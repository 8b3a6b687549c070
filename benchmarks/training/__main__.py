"""python -m benchmarks.training: every peer on every training workload, one table. See --help."""

import argparse
import dataclasses
import datetime
import os
import sys
import time

from ..__main__ import choose, end_cleanly, machine, write


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training",
                                     description="training steps in dycl, eager torch and other compilers")
    parser.add_argument("--only", metavar="A,B", help="these workloads (names or their beginnings)")
    parser.add_argument("--peers", metavar="A,B", help="these peers; eager is always measured")
    parser.add_argument("--optimizer", action="store_true", help="steps of AdamW alone")
    parser.add_argument("--paired", action="store_true",
                        help="eager, fused and dycl in one process: quick, for small differences")
    parser.add_argument("--population", action="store_true",
                        help="eager and dycl on many small programs of all fields; fails where losses differ")
    parser.add_argument("--curves", type=int, metavar="STEPS",
                        help="no times: losses over so many steps, beside eager's in single and in double precision")
    parser.add_argument("--plot", metavar="FILE", help="with --curves: draw them (SVG)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--rounds", type=int, help="rounds per workload")
    parser.add_argument("--threads", type=int, default=2, help="threads for every peer (2)")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON")
    parser.add_argument("--markdown", metavar="FILE",
                        help="write the tables there too; they always go to standard output")
    parser.add_argument("--list", action="store_true", help="show workloads and peers, and end")
    return parser.parse_args()


def main():
    options = arguments()
    from . import curves, paired, peers, report, workloads
    from . import population
    from .population import run as population_run
    from .. import timing

    if options.list:
        for item in workloads.TRAINING + workloads.OPTIMIZERS + peers.PEERS + list(population.PROGRAMS.values()):
            print(f"{item.name:20} {item.title}")
        return
    if options.population:
        chosen = choose(options.only, list(population.PROGRAMS), "program")
        sys.exit(not population_run.run(chosen, options.threads, options.rounds or 15, options.json))
    group = workloads.OPTIMIZERS if options.optimizer else workloads.TRAINING
    names = choose(options.only, [workload.name for workload in group], "workload")
    chosen = choose(options.peers, peers.BY_NAME, "peer")
    if not options.peers and "DYCL_BENCH_BEFORE" not in os.environ:  # another checkout of dycl, where one is named
        chosen.remove("before")
    if options.threads < 1:
        raise SystemExit("benchmarks: --threads takes a positive number")
    if options.curves:
        curves.run(names, options.curves, options.threads, options.plot)
        return
    if options.paired:
        paired.run(names, options.rounds or 15, options.threads)
        return
    plan = timing.QUICK if options.quick else timing.Plan()
    if options.rounds:
        plan = dataclasses.replace(plan, rounds=options.rounds)

    end_cleanly()
    begin = time.monotonic()

    def say(text):
        print(f"[{time.monotonic() - begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    run = {"day": datetime.date.today().isoformat(), "machine": machine(), "threads": options.threads,
           "versions": peers.versions(chosen), "plan": dataclasses.asdict(plan), "results": []}
    try:
        for number, name in enumerate(names):
            measure(run, workloads.BY_NAME[name], chosen, options.threads, plan,
                    lambda text, prefix=f"{number + 1}/{len(names)} {name}: ": say(prefix + text))
            write(run, options, report)
    except KeyboardInterrupt:
        say("interrupted; what was measured so far follows")
    print(report.markdown(run))


def measure(run, workload, chosen, threads, plan, say):
    from . import memory
    from .. import timing

    results = timing.run(workload, chosen, threads, plan, say)
    memory.measure(workload, results, threads, plan, say)
    run["results"].append((workload, results))


if __name__ == "__main__":
    main()
