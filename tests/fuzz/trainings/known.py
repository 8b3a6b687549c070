"""What is known to differ from eager, with reasons: see programs/known.py."""

import re

from ..programs import known as of_programs


def _order(program, difference):
    return difference.kind == "values" and re.search(r"'order \S+' and 'order \S+'$", difference.text)


TEMPORARY = []
LASTING = [
    ("celu", "torch's gradient of celu has a constant of float32 in float64",
     lambda p, d: "CELU" in p.source() and p.dtype == "torch.float64" and d.kind in ("values", "printed")),
]


def known(program, difference):
    """The name of the entry, or None."""
    for name, _, holds in TEMPORARY + LASTING:
        if holds(program, difference):
            return name
    return of_programs.known(program, difference)
