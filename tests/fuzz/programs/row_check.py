"""Single calls: the spellings of a binding's row with operands of a dtype and of every layout, each call on operands of
its own. Results, inputs afterwards and errors are compared with eager's as those of whole programs are."""

import random

import dycl
from dycl import _core

from . import calls, draw, judge, known

KINDS = ("grid", "grid", "normal", "positive", "special", "subnormal", "bytes")
NOT_SUBNORMAL = ("remainder", "mod", "fmod")  # torch's vector functions answer NaN where the quotient overflows


def rows():
    """{(name of the row, its parameters): its spellings}"""
    found = {}
    for spelling in _core.rows():
        found.setdefault((spelling[2], spelling[3]), []).append(tuple(spelling))
    return found


def program(spellings, dtype, seed, count=12):
    """So many calls, spelled in turn; the main operand of each has the dtype. What raises is caught and compared."""
    rng = random.Random(f"{spellings[0][:2]} {dtype} {seed}")
    kinds = [k for k in KINDS if k != "subnormal" or spellings[0][2] not in NOT_SUBNORMAL]
    d = draw.Draw(rng, reuse=0, lazy=0.5, main=dtype, keep_errors=1.0, values=rng.choice(kinds))
    first = rng.randrange(len(spellings))
    for k in range(count):
        calls.emit(d, spellings[(first + k) % len(spellings)])
        d.pool.clear()
    d.returned = [n for n in d.namespace if n[0] in "xv" and n[1:].isdigit()]
    return d.program(seed=seed, calls=3)


def check(spellings, dtype, seed, count=12):
    """(differences that nothing explains, statistics, the program)"""
    made = program(spellings, dtype, seed, count)
    found, site = judge.check(made)
    return [f for f in found if known.known(made, f) is None], dycl.stats(site), made
