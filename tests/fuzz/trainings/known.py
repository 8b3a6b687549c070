"""What is known to differ from eager, with reasons: see programs/known.py."""

import re

from ..programs import known as of_programs


def _order_behind_two(program, difference):
    """Weights that torch computes beside inputs that have a history."""
    computes = re.search("parametrizations|spectral_norm|weight_norm", program.source())
    return computes and difference.kind == "values" and re.search(r"'order \S+' and 'order \S+'$", difference.text)


TEMPORARY = []
LASTING = [
    ("order of leaves", "where a segment's inputs come from several of torch's nodes that do not wait for each other, "
                        "what torch's heap does with equal leaves is not known", _order_behind_two),
    ("celu", "torch's gradient of celu has a constant of float32 in float64",
     lambda p, d: "CELU" in p.source() and p.dtype == "torch.float64" and d.kind in ("values", "printed")),
]


def known(program, difference):
    """The name of the entry, or None."""
    for name, _, holds in TEMPORARY + LASTING:
        if holds(program, difference):
            return name
    return of_programs.known(program, difference)
