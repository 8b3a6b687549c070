"""Makes a failing training small, while a difference of its kind stays."""

import dataclasses
import re

from ..programs import shrink as of_programs

PLAIN = {"scheduler": "None", "optimizer": "torch.optim.SGD(net.parameters(), lr=0.01)", "dtype": "torch.float32",
         "holds": ("net",)}


def _lines(program, field, fails):
    """Leaves out single lines of what stands in several, and what only wraps others."""
    for k, step in enumerate(getattr(program, field)):
        lines = step.text.split("\n")
        for i in range(len(lines)):
            texts = ["\n".join(lines[:i] + lines[i + 1 :]), "\n".join([*lines[:i],
                                                                       *(x[4:] if x.startswith("    ") else x
                                                                                    for x in lines[i + 1 :])])]
            for text in texts:
                steps = list(getattr(program, field))
                steps[k] = dataclasses.replace(step, text=text)
                smaller = dataclasses.replace(program, **{field: tuple(steps)})
                if text and fails(smaller):
                    return _lines(smaller, field, fails)
    return program


def _modules(program, fails):
    text = program.source()
    unused = tuple(m if re.search(rf"self\.m{k}\b(?! =)", text) else "nn.Identity()" for k,
                   m in enumerate(program.modules))
    if unused != program.modules and fails(smaller := dataclasses.replace(program, modules=unused)):
        program = smaller
    for k in range(len(program.modules)):
        for change in ("nn.Identity()", re.sub(r", \w+=[^,()]+(?=[,)])", "", program.modules[k], count=1)):
            smaller = dataclasses.replace(program, modules=(*program.modules[:k], change, *program.modules[k + 1 :]))
            if change != program.modules[k] and fails(smaller):
                program = smaller
                break
    return program


def shrink(program, fails, rounds=3):
    for calls in range(1, program.calls):
        if fails(smaller := dataclasses.replace(program, calls=calls)):
            program = smaller
            break
    for name, value in PLAIN.items():
        if fails(smaller := dataclasses.replace(program, **{name: value})):
            program = smaller
    if fails(smaller := dataclasses.replace(program, sizes=(program.sizes[0],) * program.calls)):
        program = smaller
    for _ in range(rounds):
        before = program
        for field in ("train", "setup", "finish", "layers"):
            program = of_programs.fewer(program, field, fails)
        for field in ("layers", "train"):
            program = _lines(program, field, fails)
        program = _modules(program, fails)
        if program == before:
            break
    return program
