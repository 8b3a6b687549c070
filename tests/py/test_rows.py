"""Every row of the bindings' tables, in all its spellings: what it takes, what it refuses, and what its results look
like are torch's.

The rows are asked from dycl itself, so that a new one without a vocabulary (tests/fuzz/programs/vocabulary.py) fails
here. Which dtypes an operator takes, which strides, versions, aliases and errors it gives for contiguous, permuted,
sliced, expanded and empty operands, and for sizes of 1 with any stride, follows from torch's answer to the same call.
By default four dtypes a row and one seed; DYCL_TEST_FULL=1: all dtypes, more seeds."""

import pathlib
import sys

import pytest

import dycl
from suite import FULL, lot, one_thread  # noqa: F401 (a fixture)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.programs import draw, judge, row_check, run, shrink, vocabulary  # noqa: E402

dycl.accelerate(lambda: None)  # finds torch
ROWS = row_check.rows()
COUNT = 6  # calls of a program
# what answers a question, or its operand, or is made by torch beside the segment, and makes no node
ANSWERED = set(
    """size stride dim ndimension numel nelement element_size is_floating_point is_signed is_complex is_conj is_neg get_device is_contiguous
               is_same_size len cpu resolve_conj resolve_neg requires_grad item bool is_nonzero float int index tolist numpy array
               rand randn randint randperm linspace logspace range tril_indices triu_indices bartlett_window blackman_window hamming_window hann_window
               kaiser_window""".split())


def _vocabulary(spelling):
    return vocabulary.ROWS.get(spelling[1], vocabulary.ROWS.get(spelling[2]))


def test_every_row_has_a_vocabulary():
    assert len(ROWS) > 300
    assert not [s for spellings in ROWS.values() for s in spellings if _vocabulary(s) is None]


def _dtypes(row):
    if FULL:
        return draw.DTYPES
    others = sorted(draw.DTYPES[1:], key=lambda dtype: lot(*row, dtype))
    return ("torch.float32", *others[:3])


@pytest.mark.parametrize("row", list(ROWS), ids=lambda row: f"{row[0]} {lot(row[1]) % 1000}")
def test_row(row):
    recorded = 0
    for dtype in _dtypes(row):
        for seed in range(4 if FULL else 1):
            differences, stats, made = row_check.check(ROWS[row], dtype, seed, COUNT)
            recorded += stats["recorded"] > made.calls * sum(step.what == "clone" for step in made.steps)
            if differences:
                kind = differences[0].kind
                small = shrink.shrink(made, lambda p, kind=kind: any(f.kind == kind for f in _differences(p)))
                pytest.fail(f"{kind}: {differences[0].text}\n{run.script(small)}")
    assert recorded or row[0] in ANSWERED, "every call was left to torch: the vocabulary does not reach the binding"


def _differences(program):
    try:
        return judge.check(program)[0]
    except Exception:  # noqa: BLE001 (a smaller program may not even compile)
        return []

