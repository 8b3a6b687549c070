"""python -m benchmarks.terra: Terra's ten programs (examples/terra) under dycl, against eager and against graph
converters, as docs/terra.md.

Inference steps on a stream of batches that never come back, as a program in use sees them; eager and dycl take turns on
each batch, from the same state of the random generators, and their results are compared. Each program is measured in a
process of its own, and so is each converter.
"""

import argparse
import copy
import importlib.util
import json
import math
import multiprocessing
import os
import pathlib
import random
import re
import statistics
import sys
import textwrap
import time

from .__main__ import choose, machine
from .report import number, table, times
from .worker import describe

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "terra"
TITLES = {
    "dropblock": "DropBlock",
    "music_transformer": "MusicTransformer",
    "sdpoint": "SDPoint",
    "bert_cls": "BERT-CLS",
    "faster_rcnn": "FasterRCNN",
    "resnet50": "ResNet50",
    "dcgan": "DCGAN",
    "yolov3": "YOLOv3",
    "gpt2": "GPT2",
    "bert_qa": "BERT-Q&A",
}
CONVERTERS = ("torch.compile(fullgraph=True)", "torch.jit.script", "torch.export")
TOLERANCE, LEAST = 1e-4, 1e-6  # of the largest absolute value, and absolute: below it a result counts as right
WARM = 30  # batches before the first one that counts
CONVERTED = 4  # batches that a converter's result is tried on


def load(name):
    specification = importlib.util.spec_from_file_location(f"terra_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def seed(value):
    import numpy
    import torch

    torch.manual_seed(value)
    numpy.random.seed(value % 2**32)
    random.seed(value)


def leaves(tree, found):
    """All numbers of a result, as arrays."""
    import numpy

    if isinstance(tree, (list, tuple)):
        for branch in tree:
            leaves(branch, found)
    elif tree is not None:
        found.append(numpy.asarray(tree, dtype=numpy.float64))
    return found


def equal(want, got):
    want, got = leaves(want, []), leaves(got, [])
    if len(want) != len(got):
        return False
    for a, b in zip(want, got):
        if a.shape != b.shape or (a.size and not abs(a - b).max() <= max(LEAST, TOLERANCE * abs(a).max())):
            return False
    return True


def prepared(name, threads):
    import torch

    torch.set_num_threads(threads)
    seed(0)
    program = load(name)
    return program, program.build()


# ------------------------------------------------------------------------------------------------- dycl


COUNTS = ("recorded", "torch", "segments")


def measure(name, threads, seconds):
    import dycl

    program, eager = prepared(name, threads)
    ours = dycl.accelerate(copy.deepcopy(eager))
    sides = [("eager", eager), ("dycl", ours)]
    took, wrong, before, position = {"eager": [], "dycl": []}, 0, None, 0
    end = None
    for position, batch in enumerate(program.inputs(1)):
        if position == WARM:
            before, end = dycl.stats(ours), time.perf_counter() + seconds
        if end and time.perf_counter() > end:
            break
        results = {}
        for side, model in sides if position % 2 else reversed(sides):
            given = copy.deepcopy(batch)
            seed(position)
            start = time.perf_counter()
            results[side] = program.infer(model, given)
            if end:
                took[side].append(time.perf_counter() - start)
        wrong += not equal(results["eager"], results["dycl"])
    after, steps = dycl.stats(ours), position - WARM
    found = {key: (after[key] - before[key]) / steps for key in COUNTS}
    for key in ("fetch", "index", "operator", "arguments"):
        found[f"flush {key}"] = (after["flushes"].get(key, 0) - before["flushes"].get(key, 0)) / steps
    found.update(case_selects=after["case_selects"], vertices=after["graph_vertices"], steps=steps, wrong=wrong,
                 of=position)
    calls, plain = after["calls"] - before["calls"], after["plain_calls"] - before["plain_calls"]
    found["in_torch"] = plain / (calls + plain)
    found["left"] = left(dycl.explain(ours), after["calls"])
    for side in took:
        found[side] = statistics.median(took[side])
    found["ratio"] = statistics.median(a / b for a, b in zip(took["eager"], took["dycl"]))
    return found


LEFT = re.compile(r"  (.+): (.+), (\d+) times, at .*?([^/]+):(\d+)$")


def left(text, calls):
    """(operator, reason, times a call), the most frequent first."""
    counts = {}
    _, _, listed = text.partition("\nleft to torch:\n")
    for line in listed.splitlines():
        row = LEFT.match(line)
        if row:
            key = (row[1], row[2])
            counts[key] = counts.get(key, 0) + int(row[3])
    return sorted(((name, why, count / calls) for (name, why), count in counts.items()), key=lambda row: -row[2])


# ------------------------------------------------------------------------------------------------- converters


def called(module):
    """A function: a module as an attribute would become a submodule, and never be called."""
    return lambda *args, **kwargs: module(*args, **kwargs)


def convert(name, converter, threads):
    """What became of the model: right, wrong or an error's name; how many batches were tried; and the ratio to eager on
    them."""
    import torch

    program, eager = prepared(name, threads)
    target, other = copy.deepcopy(eager).eval(), copy.deepcopy(eager).eval()
    stream = program.inputs(1)
    first = next(stream)
    if converter == CONVERTERS[0]:
        target.forward = torch.compile(other.forward, fullgraph=True)
    elif converter == CONVERTERS[1]:
        target.forward = called(torch.jit.script(other))
    else:
        given, plain = [], other.forward

        def spy(*args, **kwargs):
            given.append((copy.deepcopy(args), copy.deepcopy(kwargs)))
            return plain(*args, **kwargs)

        other.forward = spy
        seed(0)
        program.infer(other, copy.deepcopy(first))
        del other.forward
        with torch.no_grad():
            target.forward = called(torch.export.export(other, *given[0]).module())
    batches = [first] + [next(stream) for _ in range(CONVERTED - 1)]
    for position, batch in enumerate(batches):
        results = []
        for model in (eager, target):
            seed(position)
            results.append((program.infer(model, copy.deepcopy(batch)), torch.get_rng_state()))
        if not equal(*results):
            return {"state": "wrong", "reason": f"batch {position + 1} of {CONVERTED} differs"}
    took = {0: [], 1: []}
    for turn in range(5):
        for position, batch in enumerate(batches):
            for side, model in enumerate((eager, target)):
                given = copy.deepcopy(batch)
                seed(position)
                start = time.perf_counter()
                program.infer(model, given)
                took[side].append(time.perf_counter() - start)
    return {"state": "right", "ratio": statistics.median(a / b for a, b in zip(took[0], took[1]))}


# ------------------------------------------------------------------------------------------------- processes


def body(connection, job, arguments):
    try:
        connection.send(job(*arguments))
    except BaseException as error:  # whatever it was: it is the answer
        connection.send({"state": "error", "class": type(error).__name__, "reason": describe(error)})
    finally:
        sys.stdout.flush()
        os._exit(0)


def apart(job, arguments, threads, patience):
    """The job's answer, from a process of its own."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    process = context.Process(target=body, args=(theirs, job, arguments))
    process.start()
    theirs.close()
    try:
        if not mine.poll(patience):
            return {"state": "error", "class": "no result", "reason": f"no result within {patience:.0f} s"}
        return mine.recv()
    except EOFError:
        return {"state": "error", "class": "crash", "reason": "the process died"}
    finally:
        process.kill()
        process.join()


# ------------------------------------------------------------------------------------------------- the page


HOW = """\
{cpu}, {cpus} processors, {threads} threads, Python {python}, torch {torch}. `python -m benchmarks.terra` makes this
page; the programs are in [examples/terra](../examples/terra).

**With dycl.** Only the model is accelerated (`dycl.accelerate(model)`); what the program does with the results runs as
it is. The stream of batches never repeats, so sizes, sampled tokens and regions of interest are new ones throughout.
Counts are per inference step, after {warm} steps: operators that were recorded, operators that torch ran within
accelerated calls, segments that were executed, values that Python asked for within accelerated calls (fetches). Case
selects are the places of the TraceGraph that have several successors. *Ratio*: eager's time of a step over dycl's, both
on the same batch in turns, median over the steps. *Right*: steps whose result is eager's, up to rounding. Programs that
sort or choose by a score may do so otherwise where two scores are nearer to each other than rounding; such a step
counts as not right (seen in YOLOv3 with its random weights: detections change places, and box sizes are exponentials of
the network's outputs, which amplify rounding).
"""
CONVERTERS_HOW = """\
**With graph converters.** The model's `forward` is converted for the first batch; the program then runs with it on
{converted} batches. *Right* with the ratio to eager (times of the same batches, compilation not counted); *wrong*:
another result for some batch, or other random numbers drawn; otherwise the error. *No result* says only that the time
allowed was not enough, on whatever else the machine had to do; converters are not measured alone, so their ratios are
rough.
"""


def average(value):
    return f"{value:.0f}" if value == round(value) or value >= 100 else f"{value:.1f}"


def page(rows, options):
    import torch

    host = machine()
    lines = ["# Terra's ten programs", ""]
    lines += [flow(HOW.format(cpu=host["cpu"], cpus=host["cpus"], python=host["python"], torch=torch.__version__,
                              threads=options.threads, warm=WARM))]
    cells = []
    for name, found, _ in rows:
        if not found or "ratio" not in found:
            cells.append([TITLES[name]] + ["-"] * 8 + [found["reason"] if found else "-"])
            continue
        cells.append(
            [TITLES[name], average(found["recorded"]), average(found["torch"]), average(found["segments"]),
             average(found["flush fetch"] + found["flush index"]), found["case_selects"]]
            + [number(found["eager"] * 1e3), number(found["dycl"] * 1e3), times(found["ratio"]),
               f"{found['of'] - found['wrong']} of {found['of']}"]
        )
    lines += table(["program", "recorded", "left to torch", "segments", "fetches", "case selects", "eager, ms",
                    "dycl, ms", "ratio", "right"], cells) + [""]
    ratios = [found["ratio"] for _, found, _ in rows if found and "ratio" in found]
    if ratios:
        lines += [f"Geometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least "
                  f"{min(ratios):.2f}.", ""]
    lefts = [[TITLES[name], operator, why, average(count)] for name, found, _ in rows if found
             for operator, why, count in found.get("left", []) if count >= 0.05]
    if lefts:
        lines += ["What is left to torch within accelerated calls, per call:",
                  ""] + table(["program", "operator", "reason", "times"], lefts) + [""]
    if any(converted for _, _, converted in rows):
        lines += [flow(CONVERTERS_HOW.format(converted=CONVERTED))]
        cells, reasons = [], []
        for name, _, converted in rows:
            row = [TITLES[name]]
            for converter in CONVERTERS:
                answer = converted.get(converter)
                if not answer:
                    row.append("-")
                    continue
                row.append(f"right, {times(answer['ratio'])}" if answer["state"] == "right"
                           else answer.get("class", "wrong"))
                if "reason" in answer:
                    said = re.sub(r" at 0x[0-9a-f]+", "",
                                  answer["reason"].replace(f"{FOLDER}/", "").replace(f"{ROOT}/", ""))
                    reasons.append([TITLES[name], f"`{converter}`", said if "`" in said else f"`{said}`"])
            cells.append(row)
        lines += table(["program", *(f"`{c}`" for c in CONVERTERS)], cells) + [""]
        lines += ["What they said:", ""] + [line for row in reasons
                                            for line in wrapped("- {}, {}: {}".format(*row), "  ")] + [""]
    return "\n".join(lines)


def flow(text):
    return "\n\n".join("\n".join(wrapped(" ".join(part.split()))) for part in text.split("\n\n")) + "\n"


def wrapped(text, indent=""):
    """Lines of at most 120 columns, as all of the documents have."""
    return textwrap.wrap(text, 120, subsequent_indent=indent, break_on_hyphens=False)


def train(options):
    from . import terra_train

    keep = pathlib.Path(options.known) if options.known else None
    known = json.loads(keep.read_text(encoding="utf-8")) if keep and keep.exists() else {}
    for name in choose(options.only, TITLES, "program"):
        known[name] = apart(terra_train.measure_training, (name, options.threads, options.steps), options.threads,
                            120 + 20 * options.steps)
        print(f"{name}: {known[name].get('ratio', known[name].get('reason'))}", file=sys.stderr, flush=True)
        if keep:
            keep.write_text(json.dumps(known) + "\n", encoding="utf-8")
    found = [(TITLES[name], known[name]) for name in TITLES if name in known]
    text = terra_train.page(found, options)
    print(text)
    if options.markdown:
        page_file = pathlib.Path(options.markdown)
        page_file.write_text(text, encoding="utf-8")
        if options.plot:
            (page_file.parent / options.plot).write_text(terra_train.curves(found), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.terra",
                                     description="Terra's ten programs under dycl and under graph converters")
    parser.add_argument("--only", metavar="A,B", help="these programs (names or their beginnings)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of measuring a program (6)")
    parser.add_argument("--threads", type=int, default=2, help="threads (2)")
    parser.add_argument("--part", choices=("dycl", "converters", "all"), default="all",
                        help="what to measure; the page holds what is known")
    parser.add_argument("--patience", type=float, default=400.0,
                        help="seconds that a converter may take for a program (400)")
    parser.add_argument("--known", metavar="FILE",
                        help="keep results in this file (JSON): what is not measured now comes from there")
    parser.add_argument("--markdown", metavar="FILE",
                        help="write the page there too; it always goes to standard output")
    parser.add_argument("--train", action="store_true", help="their training instead, with curves of the loss")
    parser.add_argument("--steps", type=int, default=300, help="of training (300)")
    parser.add_argument("--plot", metavar="FILE", help="write the curves there, as SVG; named from the page's folder")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if options.train:
        return train(options)
    keep = pathlib.Path(options.known) if options.known else None
    known = json.loads(keep.read_text(encoding="utf-8")) if keep and keep.exists() else {}
    for name in choose(options.only, TITLES, "program"):
        row = known.setdefault(name, {"dycl": None, "converters": {}})
        if options.part != "converters":
            row["dycl"] = apart(measure, (name, options.threads, options.seconds), options.threads,
                                60 + 10 * options.seconds)
            print(f"{name}: {row['dycl'].get('ratio', row['dycl'].get('reason'))}", file=sys.stderr, flush=True)
        for converter in CONVERTERS if options.part != "dycl" else ():
            row["converters"][converter] = apart(convert, (name, converter, options.threads), options.threads,
                                                 options.patience)
            print(f"{name}, {converter}: {row['converters'][converter]}", file=sys.stderr, flush=True)
        if keep:
            keep.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    rows = [(name, known[name]["dycl"], known[name]["converters"]) for name in TITLES if name in known]
    text = page(rows, options)
    print(text)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
