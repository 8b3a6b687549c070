"""Integers near the ends of their range, as sizes, steps, offsets and places: results, warnings and errors are torch's,
and none of them ends the process (torch's C++ functions throw where nobody could catch it)."""

import sys
import warnings

import dycl
import pytest
import torch

MOST = sys.maxsize


def assign(x):
    x = x * 1
    x[::MOST] = 5.0
    return x


PROGRAMS = {
    "step": lambda x: x[::MOST], "a wide step": lambda x: (x * 1)[::2**62],
    "a step of columns": lambda x: x[..., ::MOST], "a step that fits": lambda x: x[::2**33], "assign": assign,
    "write": lambda x: x[::MOST].add_(1), "from the end": lambda x: x[-MOST:], "below the end": lambda x: x[:-2**70],
    "up to": lambda x: x[:-MOST], "beyond": lambda x: x[MOST:], "tril": lambda x: x.reshape(-1, 3).tril(MOST),
    "up": lambda x: (x * 1).triu(-MOST - 1), "triu": lambda x: torch.triu(x.reshape(-1, 3), MOST),
    "tril below": lambda x: x.reshape(-1, 3).tril(-MOST - 1), "unfold": lambda x: x.unfold(0, 1, MOST),
    "unfold what is pending": lambda x: (x * 1).unfold(0, 1, 2**62),
    "as_strided": lambda x: (x * 1).as_strided((1,), (1,), MOST), "offset": lambda x: x.as_strided((1,), (1,), 2**61),
    "diagonal": lambda x: (x * 1).diagonal(MOST), "narrow": lambda x: x.narrow(0, MOST, 1),
    "roll": lambda x: x.roll(MOST), "expand": lambda x: x.expand(MOST, *x.shape),
    "twice": lambda x: (x * 1).expand(MOST, MOST, *x.shape), "repeat": lambda x: x.repeat(MOST, *x.shape),
    "select": lambda x: x.select(0, -MOST - 1), "split": lambda x: x.split(MOST)[0],
    "chunk": lambda x: x.chunk(MOST)[0], "steps": lambda x: torch.arange(0, MOST, MOST) + x.long().sum(),
    "steps down": lambda x: torch.arange(MOST, -MOST, -MOST) + x.long().sum(), "view": lambda x: x.view(MOST, -1),
}  # fmt: skip


def outcome(program, x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = program(x)
            found = result.shape, result.stride(), result.tolist() if result.numel() < 100 else None
        except (RuntimeError, IndexError, ValueError, MemoryError) as error:
            found = type(error).__name__, str(error)
    return found, x.tolist(), [(w.category, str(w.message)) for w in seen]


@pytest.mark.parametrize("name", PROGRAMS)
def test_integers_near_the_end(name):
    for shape in ((3,), (3, 4), (3, 3), (2, 3, 5)):
        call = dycl.accelerate(PROGRAMS[name])
        with torch.no_grad():
            for _ in range(3):
                assert outcome(call, torch.ones(shape)) == outcome(PROGRAMS[name], torch.ones(shape)), shape
