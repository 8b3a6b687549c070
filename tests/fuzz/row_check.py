"""Single calls: every spelling of every binding with operands of every dtype and layout, each call on operands of its own."""

import random

from dycl import _core

from . import draw, judge
from .calls import emit


def spellings():
    return [tuple(s) for s in _core.rows()]


def program(spelling, dtype, seed, calls=12):
    """A program of so many calls of one spelling; its main operand has the dtype."""
    rng = random.Random(f"{spelling[:2]} {dtype} {seed}")
    d = draw.Draw(rng, reuse=0, lazy=0.5, main=dtype, keep_errors=1.0, values=rng.choice(["grid", "grid", "normal", "positive", "special"]))
    for _ in range(calls):
        before = len(d.steps)
        emit(d, spelling)
        d.pool.clear()
        assert len(d.steps) > before or True
    d.returned = [n for n in d.namespace if n[0] in "xv" and n[1:].isdigit()]
    return d.program(seed=seed, calls=3)


def check(spelling, dtype, seed, calls=12):
    return judge.check(program(spelling, dtype, seed, calls))
