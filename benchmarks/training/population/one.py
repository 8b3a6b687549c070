"""python -m benchmarks.training.population.one NAME THREADS ROUNDS: measures one program in this process, and prints
what was found as a line of JSON. Eager and dycl take turns, from equal parameters, through equal batches."""

import json
import statistics
import sys
import time

import numpy
import torch

from . import PROGRAMS
from .program import seed

FORMS = ("eager", "dycl")
COMPARED = 8  # steps
SETTLED = 60  # steps before those that count
ROUND = 30_000  # us
MOVED = 2.0 ** -24  # half a unit in the last place
DRAWS = 3  # of parameters that are moved: a ReLU that stands at its edge turns in some of them


def started(program, form):
    import dycl

    seed()
    return program.build(dycl.accelerate if form == "dycl" else lambda model: model)


def losses(running):
    """Of the first steps, from the start."""
    running.reset()
    seed()
    return numpy.array([numpy.atleast_1d(running()) for _ in range(COMPARED)], numpy.float64)


def apart(found, expected):
    """Relative to eager's; infinite where one of them is no number."""
    if not numpy.isfinite(found).all() or not numpy.isfinite(expected).all():
        return float("inf")
    return float(numpy.max(numpy.abs(found - expected) / numpy.maximum(numpy.abs(expected), 1e-12)))


def by_rounding(program):
    """How far eager's losses move where its parameters do by a rounding."""
    running = started(program, "eager")
    plain, first, found = losses(running), running.first, []
    for number in range(DRAWS):
        seed(number)
        running.first = [moved(state) for state in first]
        found.append(apart(losses(running), plain))
    return max(found)


def moved(state):
    """Tensors at its top: parameters and buffers of a module, not what an optimizer keeps."""
    return {key: value * (1 + MOVED * torch.randint(-1, 2, value.shape))
            if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for key, value in state.items()}


def a_round(forms, number, each):
    times = {}
    for form, running in forms.items():
        seed(number)
        began = time.perf_counter()
        for _ in range(each):
            running()
        times[form] = (time.perf_counter() - began) / each * 1e6
    return times


def measure(program, rounds):
    forms = {form: started(program, form) for form in FORMS}

    def compare():
        return apart(losses(forms["dycl"]), losses(forms["eager"]))

    differences = [compare()]
    times = a_round(forms, 0, COMPARED)
    cycle = len(forms["eager"].batches)
    each = cycle * max(1, round(ROUND / times["eager"] / cycle))
    for number in range(-(-(SETTLED - 2 * COMPARED) // each)):
        a_round(forms, number, each)
    differences.append(compare())
    found = [a_round(forms, number, each) for number in range(rounds)]
    differences.append(compare())
    return {**{form: statistics.median(times[form] for times in found) for form in FORMS},
            "apart": max(differences), "cold, settled, at the end": differences, "own": by_rounding(program)}


def main():
    name, threads, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    print(json.dumps(measure(PROGRAMS[name], rounds)))


if __name__ == "__main__":
    main()
