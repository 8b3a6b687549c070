"""python -m benchmarks.terra --train: Terra's ten programs (examples/terra) in training, eager beside dycl.

Three models start from the same parameters: eager's, dycl's, and eager's in double precision, the judge where the two
part. They take turns on each batch, from the same state of the random generators. Nothing of the program is changed:
what is timed runs under `dycl.accelerate_all()`, as `python -m dycl` runs a script.
"""

import copy
import statistics
import time
from xml.sax.saxutils import escape

from .report import number, table, times
from .terra import flow, prepared, seed

WARM = 10  # steps before the first one that is timed
APART = 1e-3  # losses that differ by more, relative to eager's, have parted
SIDES = ("eager", "dycl", "double")
COLOURS = {"eager": "#8a8a8a", "dycl": "#1b6ca8", "double": "#c8553d"}
DASHES = {"eager": "", "dycl": ' stroke-dasharray="4 3"', "double": ' stroke-dasharray="1 3"'}


def as_double(tree):
    """What a program is given, its floats in double precision."""
    import numpy
    import torch

    if isinstance(tree, torch.Tensor):
        return tree.double() if tree.is_floating_point() else tree
    if isinstance(tree, numpy.ndarray):
        return tree.astype(numpy.float64) if tree.dtype.kind == "f" else tree
    if isinstance(tree, (list, tuple)):
        return type(tree)(as_double(branch) for branch in tree) if type(tree) in (list, tuple) else tree
    if isinstance(tree, dict):
        return {key: as_double(branch) for key, branch in tree.items()}
    return tree


def loss_of(result):
    """The first number that a step answers."""
    while isinstance(result, (list, tuple)):
        result = result[0]
    return float(result)


def double_step(program, model, optimizer, batch):
    """None where the program cannot do it: it draws in double precision what it drew in single, or mixes the two."""
    import torch

    torch.set_default_dtype(torch.float64)
    try:
        return loss_of(program.train(model, optimizer, as_double(batch)))
    except (RuntimeError, TypeError, ValueError):
        return None
    finally:
        torch.set_default_dtype(torch.float32)


def measure_training(name, threads, steps):
    """Losses by side, a list each (of the judge up to where it failed), and seconds of the steps that were timed."""
    import dycl

    program, eager = prepared(name, threads)
    models = {"eager": eager, "dycl": copy.deepcopy(eager), "double": copy.deepcopy(eager).double()}
    optimizers = {side: program.optimizer(model) for side, model in models.items()}
    losses, took, judged = {side: [] for side in SIDES}, {"eager": [], "dycl": []}, True
    for position, batch in zip(range(steps), program.inputs(1)):
        order = ("eager", "dycl") if position % 2 else ("dycl", "eager")
        for side in order:
            given = copy.deepcopy(batch)
            seed(position)
            start = time.perf_counter()
            if side == "dycl":
                with dycl.accelerate_all():
                    result = program.train(models[side], optimizers[side], given)
            else:
                result = program.train(models[side], optimizers[side], given)
            spent = time.perf_counter() - start
            losses[side].append(loss_of(result))
            if position >= WARM:
                took[side].append(spent)
            elif position == 0:
                losses[f"first {side}"] = spent
        if judged:
            seed(position)
            loss = double_step(program, models["double"], optimizers["double"], copy.deepcopy(batch))
            judged = loss is not None
            losses["double"] += [loss] if judged else []
    return {"losses": {side: losses[side] for side in SIDES}, "first": [losses["first eager"], losses["first dycl"]],
            **{side: statistics.median(took[side]) for side in took},
            "ratio": statistics.median(a / b for a, b in zip(took["eager"], took["dycl"]))}


# ---- The page


def parted(a, b):
    """The first step at which two curves are apart, or None."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if abs(x - y) > APART * max(abs(x), 1e-3)), None)


def rest(losses):
    """The mean loss of the last tenth."""
    return sum(losses[-max(1, len(losses) // 10):]) / max(1, len(losses) // 10)


def rows(found):
    cells = []
    for title, row in found:
        if not row or "ratio" not in row:
            cells.append([title] + ["-"] * 7 + [row["reason"] if row else "-"])
            continue
        losses = row["losses"]
        double = losses["double"] if len(losses["double"]) == len(losses["eager"]) else None
        first = parted(losses["eager"], losses["dycl"])
        other = parted(losses["eager"], losses["double"]) if losses["double"] else None
        cells.append([title, number(row["eager"] * 1e3), number(row["dycl"] * 1e3), times(row["ratio"]),
                      number(rest(losses["eager"]), 4), number(rest(losses["dycl"]), 4),
                      number(rest(double), 4) if double else "-", "never" if first is None else first,
                      "-" if not losses["double"] else "never" if other is None else other])
    return table(["program", "eager, ms", "dycl, ms", "ratio", "loss, eager", "loss, dycl", "loss, double",
                  "dycl parts", "double parts"], cells)


HOW = """\
{cpu}, {cpus} processors, {threads} threads, Python {python}, torch {torch}, {steps} steps. `python -m benchmarks.terra
--train` makes this page; the programs are in [examples/terra](../examples/terra).

Each program trains as it is, under `dycl.accelerate_all()`, beside the same program in eager, on the same batches in
turns; the stream of batches never repeats. Times are medians over the steps after the first {warm}, forward pass,
backward pass and optimizer together; *ratio* is eager's time of a step over dycl's, the median over the steps. *Loss*
is the mean over the last tenth of the steps. *Parts* is the first step whose loss differs from eager's by more than
{apart} of it: training amplifies rounding, so curves part where the program is sensitive to it. The judge is eager in
double precision, which parts from eager where rounding alone makes a difference; a dash says that the program does not
run in double precision.
"""


def page(found, options):
    """found: (title, what measure_training or the process answered)."""
    import math

    import torch

    from .__main__ import machine

    host = machine()
    lines = ["# Terra's ten programs in training", "",
             flow(HOW.format(cpu=host["cpu"], cpus=host["cpus"], python=host["python"], torch=torch.__version__,
                             threads=options.threads, steps=options.steps, warm=WARM, apart=f"{APART:g}"))]
    lines += rows(found) + [""]
    ratios = [row["ratio"] for _, row in found if row and "ratio" in row]
    if ratios:
        lines += [f"Geometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least "
                  f"{min(ratios):.2f}.", ""]
    if options.plot:
        lines += [f"![loss by step]({options.plot})", ""]
    return "\n".join(lines)


def smooth(losses, width):
    return [sum(losses[max(0, i - width): i + 1]) / len(losses[max(0, i - width): i + 1]) for i in range(len(losses))]


def curves(found):
    """Loss by step, a panel a program, as SVG: means over the last steps, so that three lines can be told apart."""
    found = [(title, row["losses"]) for title, row in found if row and "losses" in row]
    across, width, height, edge = 5, 240, 150, 30
    body = []
    for n, (title, losses) in enumerate(found):
        left, top = n % across * width + edge, n // across * height + 40
        inner, tall = width - edge - 12, height - 44
        lines = {side: smooth(losses[side], max(1, len(losses["eager"]) // 30)) for side in SIDES if losses[side]}
        low = min(min(line) for line in lines.values())
        high = max(max(line) for line in lines.values())
        span = (high - low) or 1.0
        body.append(f'<text x="{left}" y="{top - 4}" font-size="12">{escape(title)}</text>'
                    f'<rect x="{left}" y="{top}" width="{inner}" height="{tall}" fill="none" stroke="#ccc"/>'
                    f'<text x="{left - 3}" y="{top + 9}" font-size="8" text-anchor="end">{number(high)}</text>'
                    f'<text x="{left - 3}" y="{top + tall}" font-size="8" text-anchor="end">{number(low)}</text>')
        for side, line in lines.items():
            points = " ".join(f"{left + inner * i / max(len(losses['eager']) - 1, 1):.1f},"
                              f"{top + tall * (1 - (y - low) / span):.1f}" for i, y in enumerate(line))
            body.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[side]}" stroke-width="1.4"'
                        f'{DASHES[side]}/>')
    legend = "".join(f'<rect x="{280 + 90 * i}" y="8" width="10" height="10" fill="{COLOURS[side]}"/>'
                     f'<text x="{294 + 90 * i}" y="17" font-size="11">{side}</text>' for i, side in enumerate(SIDES))
    tall = (len(found) + across - 1) // across * height + 44
    size = f'width="{across * width}" height="{tall}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
            '<rect width="100%" height="100%" fill="white"/>'
            '<text x="8" y="18" font-size="14" font-weight="bold">Loss by step of training</text>'
            + legend + "\n" + "\n".join(body) + "\n</svg>\n")
