"""Pairs: every row of the operator registry as producer with every row as consumer.

A case is a pair and a seed: the seed chooses dtypes, sizes, memory formats, parameters, which weights are constant, and
how the consumer reads the producer's result (whole, as a view, twice, in another dtype; whether the program returns it
too; what follows). The pair and the seed reproduce it.
"""

import argparse
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import time
import zlib

import torch

from . import registry, rows_nn, values, worker
from .case import Case, Refused, Unsuitable
from .rows import ELEMENTWISE, EXACT, ROWS, view_forms

ATTEMPTS = 12
KINDS = ("grid", "smooth", "special", "huge")
assert rows_nn  # its rows are in ROWS

# What may follow, so that the consumer's result is seen by nobody else: exact operators; behind an inexact one those
# that are continuous.
_SEQUELS = [
    "{z} * 2",
    "{z}.clone()",
    "{z}.double()",
    "torch.cat([{z}, {z}])",
    "{z}.flatten()",
    "{z} == {z}",
    "{z}.amax()",
    "({z} + {z}, {z} - 1)",
]
_JUMPS = ["{z}.bool()", "({z} + {z}, {z} > 0)", "{z}.argmax()"]


class Program:
    """What the judge runs. `source`: definitions of the constants, of `make` (the arguments) and `program`."""

    def __init__(self, case, producer, consumer, split, result, settings):
        self.producer, self.consumer, self.settings = ROWS[producer], ROWS[consumer], settings
        self.kind, self.constants, self.arguments = case.kind, case.constants, case.arguments
        self.lines, self.split, self.result = case.lines, split, result
        self.zeros = self.producer.zeros and self.consumer.zeros and ".amax(" not in result
        self.floats = {case.dtype(name) for name in case.space if isinstance(case.space[name], torch.Tensor)} & set(
            values.FLOATS
        )
        names = [name for name, _ in self.arguments]
        self.source = "".join(f"{name} = {text}\n" for name, text in self.constants)
        self.source += f"def make():\n    return [{', '.join(text for _, text in self.arguments)}]\n"
        self.source += case.function("program", names, self.lines, result)

    def text(self, seed):
        """The case as a small program."""
        names = ", ".join(name for name, _ in self.arguments)
        lines = [
            "import dycl, torch, torch.nn.functional as F",
            "from torch import inf, nan, nn",
            f"torch.manual_seed({seed})",
        ]
        lines += [f"{name} = {text}" for name, text in self.constants + self.arguments]
        lines += [f"def program({names}):", *(f"    {line}" for line in self.lines), f"    return {self.result}"]
        lines += ["accelerated = dycl.accelerate(program)", "with torch.no_grad():"]
        lines += [f"    print(program({names}), [accelerated({names}) for _ in range({self.settings['calls']})])"]
        return "\n".join(lines)


def _input_shape(rng, producer, consumer, large):
    wants = ROWS[producer].wants if ROWS[producer].wants != "any" else ROWS[consumer].wants
    if wants == "any":
        rank = rng.choice([0, 1, 2, 2, 3, 3, 4, 4, 4, 5, 6])
    else:
        rank = {"image": 4, "line": 3, "matrix": rng.choice([2, 2, 3])}[wants]
        rank += rng.choice([0, 0, 0, 0, 0, -1, 1])
    if large:
        return values.large_shape(rng, rank)
    if wants == "image" and rank == 4:
        return tuple(
            rng.choice(choices)
            for choices in ([1, 2, 3], [1, 2, 3, 4, 8, 8, 16, 17], [1, 3, 5, 7, 8, 12, 16, 33], [1, 2, 5, 6, 9, 16, 17])
        )
    return values.shape(rng, rank)


def _read(c, y):
    """How the consumer reads the producer's result."""
    way = c.choose("whole", "whole", "whole", "view", "view", "cast", "twice", "inside")
    if way == "view":
        return c.let(c.rng.choice(view_forms(c, y)))
    if way == "cast":
        return c.let(ROWS["cast"].make(c, y))
    c.twice = way == "twice"
    return y


def _write(c, producer, consumer, dtype, adapt):
    """Writes the program: (where the lines behind the producer begin, the result)."""
    x = c.argument(_input_shape(c.rng, producer, consumer, c.large), dtype)
    made = c.let(ROWS[producer].make(c, x))
    if made != "y":
        c.line(f"y = {made}")
    if c.limit is not None:
        c.places["y"] = c.limit
    split = len(c.lines)
    c.count += 1
    results = ["y"] if c.chance(0.25) else []
    second = _read(c, "y")
    if adapt:
        second = c.floating(second)
    c.limit = None
    z = c.let(ROWS[consumer].make(c, second), "z")
    if c.twice:
        results.append(c.choose("y * 2", "y.flatten()", "y.clone()"))
    results.insert(
        0, c.choose(*_SEQUELS, *(_JUMPS if ROWS[consumer].kind == EXACT else [])).format(z=z) if c.chance(0.3) else z
    )
    result = ", ".join(results) + ("," if len(results) == 1 and c.chance(0.1) else "")
    c.line(f"result = {result}")
    c.lines.pop()
    return split, result


def build(producer, consumer, seed, forced=None):
    """The program of a pair and a seed, perhaps with a forced kind or dtype of data. Raises Unsuitable where no choice
    was found."""
    rng = random.Random(zlib.crc32(f"{producer} {consumer} {seed}".encode()))
    kind = rng.choices(["grid", "smooth", "special"], [68, 18, 14])[0]
    kind = forced if forced in KINDS else kind
    if kind == "special" and rng.random() < 0.5 and {ROWS[producer].kind, ROWS[consumer].kind} <= {EXACT, ELEMENTWISE}:
        kind = "huge"
    large = rng.random() < 0.02
    settings = {
        "calls": 4 if large else rng.choices([4, 5, 16, 150], [70, 16, 10, 4])[0],
        "pack": rng.random() > 0.08,
        "rewrite": rng.random() < 0.3,
    }
    error = None
    for attempt in range(ATTEMPTS):
        dtype = rng.choices(list(values.DTYPES), [44, 12, 7, 7, 4, 4, 5, 5, 7, 5])[0] if attempt < 3 else "f32"
        if forced in values.DTYPES:
            dtype = forced
        c = Case(rng.randrange(2**31), kind, large and attempt < 6)
        try:
            split, result = _write(c, producer, consumer, dtype, attempt > 6)
            return Program(c, producer, consumer, split, result, settings)
        except Unsuitable:
            continue
        except Refused as refusal:
            error = refusal.__cause__
            if rng.random() < 0.1:  # the same error is due
                return Program(c, producer, consumer, None, "None", settings)
    raise Unsuitable(f"{producer} {consumer}: {error!r}")


# ---- Running


def run_case(producer, consumer, seed, kind=None):
    """What became of a case: compared, decided by rounding, the same error, not made; or the difference. `torch`:
    whether something was left to torch."""
    from . import judge

    with torch.no_grad():
        try:
            program = build(producer, consumer, seed, kind)
        except Unsuitable as reason:
            return {"outcome": "unsuitable", "text": str(reason)}
        try:
            stats, outcome = judge.judge(program, seed)
        except judge.Difference as difference:
            return {
                "outcome": "difference",
                "kind": difference.kind,
                "text": str(difference),
                "program": program.text(seed),
            }
    return {"outcome": outcome, "torch": stats["torch"] > 0, "half": bool(program.floats & set(values.HALVES))}


def all_pairs(pattern=None):
    """Every pair, or those whose "producer consumer" the pattern finds."""
    pairs = [(p, c) for p in registry.recorded_rows() for c in registry.recorded_rows()]
    return [pair for pair in pairs if not pattern or re.search(pattern, " ".join(pair))]


def isas():
    """Instruction sets that this machine has, the best first."""
    asked = [sys.executable, "-c", "from dycl import _core; print(_core.info()['isa'])"]

    def answer(isa):
        environment = worker.Setting(isa, None, 1).environment()
        return subprocess.run(
            asked, env=environment, capture_output=True, text=True, check=True, cwd=worker.ROOT
        ).stdout

    return [isa for isa in ("avx512", "avx2", "scalar") if answer(isa).strip() == isa]


def setting_of(number, isa, measure, threads):
    """The setting of a chunk: what is not asked for goes round."""
    if measure is None:
        measure = [-1, 0, -1, 1, 2][number // len(isa) % 5]
    threads = threads or 1 + (number // 2 + number // (2 * len(isa))) % 2
    return worker.Setting(isa[number % len(isa)], None if measure < 0 else measure, threads)


class Report:
    """Counts, and the differences by kind."""

    def __init__(self, write):
        self.write, self.counts, self.failures = write, {}, []
        self.compared, self.recorded, self.half = set(), set(), set()  # pairs; half: with floats of 16 bits

    def add(self, case, setting, said):
        outcome = said["outcome"]
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        if outcome == "equal":
            self.compared.add(tuple(case[:2]))
            if not said["torch"]:
                self.recorded.add(tuple(case[:2]))
            if said["half"]:
                self.half.add(tuple(case[:2]))
        if outcome in ("difference", "crash", "hang"):
            kind = said.get("kind", outcome)
            if kind != outcome:
                self.counts[kind] = self.counts.get(kind, 0) + 1
            name = "/".join(str(part) for part in case if part is not None)
            text = f"{kind} {name} ({setting.options()})\n{said['text']}\n{said.get('program', '')}"
            self.failures.append((kind, case, setting, text))
            self.write(f"{text}\nagain: python -m tests.fuzz pairs --case {name} {setting.options()}\n")


def run_cases(cases, setting, report):
    for case, said in worker.run_chunk("tests.fuzz.pairs.run", cases, setting):
        report.add(case, setting, said)


CHUNK = 2500


def chunks(pairs, seed, isa, measure=None, threads=None, kind=None):
    """One round: all pairs in random order, in chunks with their settings."""
    shuffled = random.Random(seed).sample(pairs, len(pairs))
    for number, start in enumerate(range(0, len(shuffled), CHUNK)):
        yield (
            [(*pair, seed, kind) for pair in shuffled[start : start + CHUNK]],
            setting_of(number + seed, isa, measure, threads),
        )


def rounds(pairs, seed, report, *, seconds=None, count=1, isa=None, measure=None, threads=None, jobs=None, kind=None):
    """Rounds of chunks, several processes at a time, until the time is over or `count` rounds have run."""
    isa = isa or isas()
    end = time.monotonic() + seconds if seconds else None
    everything = (
        chunk
        for n in range(count if end is None else 1 << 30)
        for chunk in chunks(pairs, seed + n, isa, measure, threads, kind)
    )
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        waiting = set()
        for cases, setting in everything:
            if end is not None and time.monotonic() > end:
                break
            waiting.add(pool.submit(run_cases, cases, setting, report))
            if len(waiting) >= (jobs or os.cpu_count()):
                done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    future.result()
        for future in waiting:
            future.result()


LAYOUTS = "conv2d conv_transpose2d max_pool2d avg_pool2d".split()  # rows that choose how their results lie


def bounded(seed, count):
    """Cases for a test: what changes the order of memory in front of every row, each row as producer and as consumer of
    random others, and more at random."""
    rng, names = random.Random(seed), registry.recorded_rows()
    chosen = {(p, c) for p in LAYOUTS for c in names}
    for name in names:
        chosen |= {(name, c) for c in rng.sample(names, 3)} | {(p, name) for p in rng.sample(names, 3)}
    rest = [pair for pair in all_pairs() if pair not in chosen]
    chosen = sorted(chosen) + rng.sample(rest, max(0, count - len(chosen)))
    return [(*pair, seed) for pair in rng.sample(chosen, count)]


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz pairs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument(
        "--seconds", type=float, help="rounds begin until then; default: one round, that is each pair once"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", help="a regular expression that finds something in 'producer consumer'")
    parser.add_argument(
        "--kind", choices=[*KINDS, *values.DTYPES], help="of all data, or the dtype of the first; default: by the seed"
    )
    parser.add_argument("--isa", help="avx512, avx2, scalar, or several with commas; default: all")
    parser.add_argument(
        "--measure", type=int, help="the way that steps take (DYCL_MEASURE), -1: as measured; default: in turn"
    )
    parser.add_argument("--threads", type=int, help="default: 1 and 2 in turn")
    parser.add_argument("--jobs", type=int, help="processes at a time; default: one a core")
    parser.add_argument("--case", help="producer/consumer/seed: this case alone")
    parser.add_argument("--show", action="store_true", help="with --case: the program, without running it")
    options = parser.parse_args(arguments)
    report = Report(lambda text: print(text, flush=True))
    isa = options.isa.split(",") if options.isa else isas()
    if options.case:
        producer, consumer, seed, *kind = options.case.split("/")
        if options.show:
            with torch.no_grad():
                print(build(producer, consumer, int(seed), *kind).text(int(seed)))
            return 0
        measure = options.measure if options.measure is not None and options.measure >= 0 else None
        run_cases(
            [(producer, consumer, int(seed), *kind)], worker.Setting(isa[0], measure, options.threads or 1), report
        )
        print(report.counts)
        return bool(report.failures)
    pairs = all_pairs(options.only)
    rounds(
        pairs,
        options.seed,
        report,
        seconds=options.seconds,
        count=options.rounds,
        isa=isa,
        measure=options.measure,
        threads=options.threads,
        jobs=options.jobs,
        kind=options.kind,
    )
    print(f"{report.counts}; {len(report.compared)} of {len(pairs)} pairs compared, ", end="")
    print(f"{len(report.recorded)} without anything left to torch")
    return bool(report.failures)
