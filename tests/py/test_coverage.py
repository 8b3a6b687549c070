"""What transformers' families and torch's recurrent layers leave to torch in the steady state, which docs/coverage.md
lists.

    python tests/py/test_coverage.py        # writes docs/coverage.md anew
"""

import copy
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("DYCL_CHOOSE", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import dycl
import families
import pytest
import torch
from test_models import compare

DOCUMENT = Path(__file__).parents[2] / "docs" / "coverage.md"
WARM = 3  # runs until the steady state: plans new, tuned, and predicted by the TraceGraph

# What torch still has to run, by case: nothing may be added to any other case. An entry goes when its operators are
# represented.
LEFT = {
    "nn.LSTM, projection": 1,  # torch warns about them
}

HEADER = """# Coverage: what runs in dycl

Inference of transformers' families and of torch's recurrent layers, small models from configurations with random
weights (`tests/py/families.py`), in the steady state: the fourth run of the same program. *Calls* is how often the
accelerated module is called from outside (a generation is one call, of `generate`), *recorded* how many operators dycl
recorded in these calls, *torch* how many of them it left to torch, *fetches* how often a segment ended because a value
was needed: by Python (a mask is looked at: is anything padded?) or to prove that an index is in range. Results are
compared with eager's. The positions of `topk` and of `sort` and the counts of `histc` (Mixtral's router and experts)
come from torch's own kernels, called as steps of a segment: the order of equal elements is theirs alone. LSTM layers
with projections stay in torch, which warns about them.

`tests/py/test_coverage.py` derives the table and fails when it is out of date; `python tests/py/test_coverage.py`
writes it.

| program | calls | recorded | torch | fetches |
|---|---|---|---|---|
"""


def measured(name):
    """The counts of one run in the steady state, after results were compared with eager's."""
    module, run = families.program(name)
    model = dycl.accelerate(copy.deepcopy(module))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = run(module)
        for i in range(WARM + 1):
            before = counts(model) if i == WARM else None
            compare(want, run(model), f"{name}, run {i}")
    return {key: value - before[key] for key, value in counts(model).items()}, dycl.explain(model)


def counts(model):
    stats = dycl.stats(model)
    flushes = stats["flushes"]
    assert stats["plain_calls"] == stats["plain_nested"], stats  # a model's calls inside its own generate
    return {"calls": stats["calls"], "recorded": stats["recorded"], "torch": stats["torch"],
            "fetches": flushes.get("fetch", 0) + flushes.get("index", 0)}


def row(name, count):
    return f"| {name} | {count['calls']} | {count['recorded']} | {count['torch']} | {count['fetches']} |\n"


@pytest.mark.parametrize("name", families.CASES)
def test_coverage(name):
    count, text = measured(name)
    assert count["calls"] > 0 and count["recorded"] > 0
    assert count["torch"] == LEFT.get(name, 0), text[text.find("left to torch") :][:2000]
    assert row(name, count) in DOCUMENT.read_text(), \
        f"docs/coverage.md is out of date: python {Path(__file__).name}; now {row(name, count)}"


def test_the_document_has_all_cases_and_no_others():
    listed = [line.split("|")[1].strip() for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")][1:]
    assert listed == list(families.CASES) and set(LEFT) <= set(families.CASES)


def write():
    rows = [row(name, measured(name)[0]) for name in families.CASES]
    DOCUMENT.write_text(HEADER + "".join(rows))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    write()
