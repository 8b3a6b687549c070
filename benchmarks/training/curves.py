"""Losses of eager, dycl and eager in double precision over many steps: what rounding alone makes of a curve is what
single precision makes of it in eager, so the third says whether the second is as right as the first."""

import statistics

import torch

from ..report import number, table
from ..terra import seed
from ..terra_train import SIDES, as_double, curves, loss_of, parted
from . import peers, workloads

FRESH = 0.05  # noise of this size is added to what is drawn once: four batches would be known by heart


def renewed(batch, step):
    """The batch with some noise on its floats, which each step has of its own."""
    generator = torch.Generator().manual_seed(step)

    def noisy(tensor):
        if not tensor.is_floating_point():
            return tensor
        noise = FRESH * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        return (tensor + noise).clamp(tensor.min(), tensor.max())  # probabilities stay some

    return tuple(noisy(part) if isinstance(part, torch.Tensor) else part for part in batch)


def double(task):
    """The task in double precision, as its own start."""
    task.models = [model.double() for model in task.models]
    return peers.Steps(task)


def measure(name, steps, threads):
    """Losses by side, a list each. Raises what a side raises; the judge may stop early where its program cannot be done
    in double precision."""
    torch.set_num_threads(threads)
    sides = {
        "eager": peers.eager(workloads.build(name), None, threads),
        "dycl": peers.dycl(workloads.build(name), None, threads),
        "double": double(workloads.build(name)),
    }
    batches, found, judged = workloads.build(name).batches, {side: [] for side in SIDES}, True
    for step in range(steps):
        batch = renewed(batches[step % len(batches)], step)
        for side in ("eager", "dycl"):
            seed(step)
            found[side].append(loss_of(sides[side](batch)))
        if not judged:
            continue
        seed(step)
        torch.set_default_dtype(torch.float64)
        try:
            found["double"].append(loss_of(sides["double"](as_double(batch))))
        except (RuntimeError, TypeError, ValueError):
            judged = False
        finally:
            torch.set_default_dtype(torch.float32)
    return found


def distance(a, b):
    """The median over the steps of how far two curves are apart, as a part of the second."""
    return statistics.median(abs(x - y) / max(abs(y), 1e-3) for x, y in zip(a, b))


def rows(found):
    def first(a, b):
        step = parted(a, b)
        return "never" if step is None else step

    cells = []
    for name, losses in found.items():
        whole = len(losses["double"]) == len(losses["eager"])
        cells.append([
            name, number(losses["eager"][0], 4), number(losses["eager"][-1], 4), number(losses["dycl"][-1], 4),
            first(losses["eager"], losses["dycl"]),
            first(losses["eager"], losses["double"]) if whole else "-",
            f"{distance(losses['eager'], losses['double']):.1e}" if whole else "-",
            f"{distance(losses['dycl'], losses['double']):.1e}" if whole else "-",
        ])
    return table(["workload", "first loss", "last, eager", "last, dycl", "dycl parts", "double parts",
                  "eager from double", "dycl from double"], cells)


def run(names, steps, threads, plot):
    found = {}
    for name in names:
        found[name] = measure(name, steps, threads)
        print("\n".join(rows({name: found[name]})[-1:]), flush=True)
    print("\n" + "\n".join(rows(found)))
    if plot:
        with open(plot, "w", encoding="utf-8") as file:
            file.write(curves([(name, {"losses": losses}) for name, losses in found.items()]))
