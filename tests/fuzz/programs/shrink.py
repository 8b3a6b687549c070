"""Makes a failing program small: fewer steps, results, calls and inputs, smaller and plainer tensors, while a
difference of its kind stays."""

import dataclasses
import re

from . import layout
from .program import Program, variables

NUMBERS = re.compile(r"\d+")


def without(items, start, count):
    return items[:start] + items[start + count :]


def fewer(program, field, fails):
    """Leaves out as many of the field's items as may be, in ever smaller groups, from the end."""
    size = max(len(getattr(program, field)) // 2, 1)
    while size:
        at = len(getattr(program, field)) - size
        while at >= 0:
            smaller = dataclasses.replace(program, **{field: without(getattr(program, field), at, size)})
            if fails(smaller):
                program = smaller
            at -= size
        size //= 2
    return program


def _used(program):
    names = set(program.returned)
    for step in program.steps:
        names |= variables(step.text)
    return names | {i.of for i in program.inputs if i.name in names}


def _without_unused_inputs(program):
    names = _used(program)
    return dataclasses.replace(program, inputs=tuple(i for i in program.inputs if i.name in names))


def _without_unused_modules(program):
    text = "".join(s.text for s in program.steps)
    return dataclasses.replace(program, modules=tuple(m if re.search(rf"\bm{k}\b", text) else "torch.nn.Module()"
                                                      for k, m in enumerate(program.modules)))


def _plainer(program, fails):
    """Inputs one by one: ordinary strides, no offset, plain values, smaller sizes."""
    for k in range(len(program.inputs)):
        for change in _changes(program.inputs[k]):
            item = dataclasses.replace(program.inputs[k], **change)
            smaller = dataclasses.replace(program, inputs=(*program.inputs[:k], item, *program.inputs[k + 1 :]))
            if item != program.inputs[k] and fails(smaller):
                program = smaller
    return program


def _changes(item):
    yield {"strides": layout.contiguous(item.sizes), "offset": 0}
    yield {"offset": 0}
    yield {"values": "grid"}
    yield {"seed": 0}
    yield {"dtype": "torch.float32"}
    yield {"grad": False}
    for d, s in enumerate(item.strides):
        if item.sizes[d] == 1 and s != 1:
            yield {"strides": (*item.strides[:d], 1, *item.strides[d + 1 :])}


def _smaller_sizes(program, fails):
    """One size everywhere, in inputs and in texts, becomes smaller."""
    numbers = {n for i in program.inputs for n in i.sizes if n > 1}
    for n in sorted(numbers, reverse=True):
        for to in (2, 3, n // 2, n - 1):
            if not 1 < to < n:
                continue
            inputs = []
            for i in program.inputs:
                sizes, strides = layout.resized(i.sizes, i.strides, n, to)
                inputs.append(dataclasses.replace(i, sizes=sizes, strides=strides) if n in i.sizes else i)
            steps = [dataclasses.replace(s, text=re.sub(rf"(?<![\w.]){n}(?![\w.])", str(to), s.text))
                     for s in program.steps]
            for changed in (program.steps, tuple(steps)):
                smaller = dataclasses.replace(program, inputs=tuple(inputs), steps=changed)
                if fails(smaller):
                    program = smaller
                    break
            else:
                continue
            break
    return program


def _uncaught(program, fails):
    """Where a step catches an error that no longer comes, or must come."""
    for k, step in enumerate(program.steps):
        if not step.text.startswith("try:\n"):
            continue
        body = "\n".join(line[4:] for line in step.text.split("\n")[1:-2])
        steps = (*program.steps[:k], dataclasses.replace(step, text=body), *program.steps[k + 1 :])
        smaller = dataclasses.replace(program, steps=steps)
        if fails(smaller):
            program = smaller
    return program


def shrink(program: Program, fails, rounds=4):
    """fails: whether a program differs in the same kind. The smallest that was found."""
    for calls in (1, 2, 3):
        if calls < program.calls and fails(smaller := dataclasses.replace(program, calls=calls)):
            program = smaller
            break
    for change in ({"other": None}, {"form": "function"}, {"mode": "no_grad"}):
        if fails(smaller := dataclasses.replace(program, **change)):
            program = smaller
    for _ in range(rounds):
        before = program
        program = fewer(program, "steps", fails)
        program = fewer(program, "returned", fails)
        program = _without_unused_inputs(program)
        if fails(smaller := _without_unused_modules(program)):
            program = smaller
        program = _smaller_sizes(_plainer(_uncaught(program, fails), fails), fails)
        if program == before:
            break
    return program
