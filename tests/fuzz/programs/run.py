"""Random programs: python -m tests.fuzz programs --seconds 600 --seed 1

Each program runs in eager torch and through dycl, several calls, and everything that it can tell is compared
(compare.py, judge.py). Programs run in batches in processes of their own, with one thread or two and each instruction
set in turn, so that a crash or an endless loop ends a batch and is laid to the program that ran. What differs is made
small and printed as a script. The status is 0 where nothing differed."""

import argparse
import collections
import dataclasses
import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import traceback

BATCH = 300
LIMIT = 120  # seconds that one program may take
DRAWS = 6  # of a program that ended its process: what torch writes behind its memory ends it now and then
ENVIRONMENTS = [{}, {"DYCL_ISA": "avx2"}, {"FUZZ_THREADS": "2"}, {"DYCL_ISA": "scalar"}, {}, {"DYCL_CHOOSE": "1"}]


def environment(batch):
    """Memory that nobody wrote holds the same in eager and dycl (MALLOC_PERTURB_); threads that wait do not compete
    with other batches."""
    return {"DYCL_CHOOSE": "0", "DYCL_PROFILE": "0", "OMP_WAIT_POLICY": "passive", "MALLOC_PERTURB_": "90",
            **ENVIRONMENTS[batch % len(ENVIRONMENTS)]}


# ---- in the batch's process


def prepare():
    import torch

    import dycl

    dycl.accelerate(lambda: None)
    threads = int(os.environ.get("FUZZ_THREADS", "1"))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    for name in "acos asin atan cos erf erfc erfinv exp expm1 log log10 log1p log2 sin sqrt tan tanh".split():
        # MKL chooses its kernels at the first call: by one thread (tests/py/conftest.py)
        getattr(torch, name)(torch.full((1,), 0.5))


def part(fuzzer, name):
    """A module of the fuzzer's: each has `generate`, `known` and `shrink`."""
    return importlib.import_module(f"tests.fuzz.{fuzzer}.{name}")


def drawn(fuzzer, seed, i):
    return part(fuzzer, "generate").draw_program(f"{seed} {i}")


def difference_of(fuzzer, program):
    """(the first difference that counts and is not known, names of known ones)."""
    from . import judge

    names = []
    for difference in judge.check(program)[0]:
        name = part(fuzzer, "known").known(program, difference)
        if name is None:
            return difference, names
        names.append(name)
    return None, names


def work(fuzzer, seed, first, count):
    from . import compare

    prepare()
    for i in range(first, first + count):
        print(json.dumps({"start": i}), flush=True)
        program = drawn(fuzzer, seed, i)
        print(json.dumps({"drawn": i}), flush=True)
        try:
            difference, names = difference_of(fuzzer, program)
        except Exception:  # noqa: BLE001 (what compares or dycl raised where no program catches it)
            difference, names = compare.Difference("raised", 0, traceback.format_exc()[-1500:]), []
        print(json.dumps({"done": i, "steps": len(program.steps), "known": names,
                          "kind": difference and difference.kind, "text": difference and difference.text}), flush=True)
    return 0


def reduced(fuzzer, seed, i):
    """The smallest program that differs as program i does, as a script."""
    prepare()
    program = drawn(fuzzer, seed, i)
    found, _ = difference_of(fuzzer, program)
    if found is None:
        return None, "does not differ when it runs alone"

    def fails(smaller):
        try:
            difference, _ = difference_of(fuzzer, smaller)
        except Exception:  # noqa: BLE001 (a smaller program may not even compile)
            return False
        return difference is not None and difference.kind == found.kind

    small = part(fuzzer, "shrink").shrink(program, fails)
    return small.script(), (difference_of(fuzzer, small)[0] or found).text


def reduced_crash(fuzzer, seed, i, env):
    """As `reduced`, for a program that ends its process: each smaller one runs in a process of its own."""
    prepare()
    program = drawn(fuzzer, seed, i)

    def fails(smaller):
        done = subprocess.run([sys.executable, "-c", smaller.script()], env={**os.environ, **env}, capture_output=True,
                              timeout=LIMIT)
        return done.returncode < 0

    if not fails(program):
        return None, "does not end the process when it runs alone"
    return part(fuzzer, "shrink").shrink(program, fails, rounds=2).script(), ""


# ---- the driver


@dataclasses.dataclass
class Result:
    programs: int = 0
    steps: int = 0
    torch_crashes: int = 0
    known: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list = dataclasses.field(default_factory=list)  # (index, kind, text, script)


def child(fuzzer, arguments, env):
    return [sys.executable, "-m", "tests.fuzz", fuzzer, *map(str, arguments)], {**os.environ, **env}


def read(process, lines):
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def ends_torch(fuzzer, seed, first, last, env):
    """Whether the programs that one process ran end it without dycl too: a later call gives a kernel other values than
    the first one, or an operator has written behind its memory long before it shows."""
    env = {**env, "DYCL_DISABLE": "1"}
    command, full = child(fuzzer, ["--seed", seed, "--show", last], env)
    shown = [subprocess.run(command, env=full, capture_output=True, text=True, timeout=LIMIT) for _ in range(DRAWS)]
    if any(s.returncode < 0 for s in shown):  # an operator that was tried, and is no part of the program
        return True
    text = shown[0].stdout
    alone = subprocess.run([sys.executable, "-c", text], env=full, capture_output=True, timeout=LIMIT)
    if alone.returncode < 0:
        return True
    command, full = child(fuzzer, ["--seed", seed, "--work", first, "--count", last + 10 - first], env)
    return subprocess.run(command, env=full, capture_output=True, timeout=10 * LIMIT).returncode < 0


def run_batch(fuzzer, seed, first, count, env, result):
    """Runs a batch to its end, beginning anew behind a program that ended it."""
    at, last_words = first, tempfile.TemporaryFile("w+", errors="replace")
    while at < first + count:
        command, full = child(fuzzer, ["--seed", seed, "--work", at, "--count", first + count - at], env)
        last_words.truncate(0)
        process = subprocess.Popen(command, env=full, stdout=subprocess.PIPE, stderr=last_words, text=True)
        lines = queue.SimpleQueue()
        threading.Thread(target=lambda p=process: read(p, lines), daemon=True).start()
        running, drawn = at, False
        while True:
            try:
                line = lines.get(timeout=LIMIT)
            except queue.Empty:
                process.kill()
                result.failures.append((running, "hang", f"more than {LIMIT} s", env))
                break
            if line is None:
                break
            if not line.startswith("{"):
                continue
            message = json.loads(line)
            if "start" in message:
                running, drawn = message["start"], False
                continue
            if "drawn" in message:
                drawn = True
                continue
            result.programs += 1
            result.steps += message["steps"]
            result.known.update(message["known"])
            if message["kind"]:
                result.failures.append((running, message["kind"], message["text"], env))
            running += 1
        process.stdout.close()
        process.wait()
        if running < first + count and process.returncode != 0:
            if not drawn or ends_torch(fuzzer, seed, at, running, env):  # while the program was drawn, or without dycl
                result.torch_crashes += 1
            elif process.returncode != -9:
                last_words.seek(0)
                text = f"exit status {process.returncode}\n{last_words.read()[-1500:]}"
                result.failures.append((running, "crash", text, env))
            result.programs += 1
        at = running + 1 if process.returncode != 0 else first + count


def report(fuzzer, seed, failure):
    index, kind, text, env = failure
    print(f"\n==== program {seed}:{index}: {kind} "
          f"({' '.join(f'{k}={v}' for k, v in env.items() if k != 'DYCL_PROFILE')})\n{text}", flush=True)
    if kind == "hang":
        return
    command, full = child(fuzzer, ["--seed", seed, "--reduce", index, *(["--crashed"] if kind == "crash" else [])], env)
    try:
        done = subprocess.run(command, env=full, capture_output=True, text=True, timeout=900)
        print(done.stdout + done.stderr[-2000:], flush=True)
    except subprocess.TimeoutExpired:
        print("could not be made small in 15 minutes", flush=True)


def main(argv, fuzzer="programs", size=BATCH):
    """size: of a batch."""
    what = "Random programs in eager torch and through dycl: everything that they can tell is compared."
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz {fuzzer}", description=what)
    parser.add_argument("--seconds", type=float, default=60, help="how long to make new programs")
    parser.add_argument("--programs", type=int, default=None, help="how many programs instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="index of the first program")
    parser.add_argument("--show", type=int, help="print this program of the seed as a script")
    parser.add_argument("--no-reduce", action="store_true", help="do not make failing programs small")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--reduce", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--crashed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.work is not None:
        return work(fuzzer, options.seed, options.work, options.count)
    if options.show is not None:
        prepare()
        print(drawn(fuzzer, options.seed, options.show).script())
        return 0
    if options.reduce is not None:
        env = {k: v for k, v in os.environ.items() if k.startswith(("DYCL_", "FUZZ_"))}
        text, what = reduced_crash(fuzzer, options.seed, options.reduce, env) if options.crashed \
            else reduced(fuzzer, options.seed, options.reduce)
        print(f"{what}\n{text or ''}")
        return 0
    result, end, batch = Result(), time.monotonic() + options.seconds, 0
    while result.programs < options.programs if options.programs else time.monotonic() < end:
        count = min(size, options.programs - result.programs) if options.programs else size
        before = len(result.failures)
        env = environment(options.first // size + batch)
        run_batch(fuzzer, options.seed, options.first + batch * size, count, env, result)
        for failure in result.failures[before:]:
            print(f"{failure[0]} {failure[1]} {failure[2].splitlines()[0][:200] if failure[2] else ''}",
                  flush=True) if options.no_reduce else report(fuzzer, options.seed, failure)
        batch += 1
    print(f"{result.programs} programs, {result.steps} steps, {len(result.failures)} differ, {result.torch_crashes} "
          f"end torch itself, known: {dict(result.known)}")
    return 1 if result.failures else 0
