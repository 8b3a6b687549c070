"""Pairs of operators from the fuzzer (tests/fuzz/pairs): a fixed lot of them, and that it sees what it is there to see.

DYCL_TEST_FULL=1: every row as producer with every row as consumer, once."""

import json
import os
import pathlib
import re
import sys

import pytest
import torch

import dycl
import tolerance
from suite import FULL

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.pairs import jitter, judge, registry, rows, run, worker  # noqa: E402
from tests.fuzz.pairs import rows_nn  # noqa: E402, F401 (fills the rows)

COUNT = 1800
PARTS = 6  # each with its own instruction set, threads and ways
CSRC = registry.CSRC


def test_every_row_of_the_registry_has_a_generator():
    assert set(rows.ROWS) == set(registry.recorded_rows())


def test_rows_without_a_generator_are_not_recorded():
    """But for the file that makes one."""
    texts = {str(path.relative_to(CSRC)): path.read_text() for folder in ("py", "record")
             for path in (CSRC / folder).rglob("*.[ch]")}
    assert set(registry.NOT_RECORDED) <= set(registry.rows())
    assert not [(row, name) for row, reason in registry.NOT_RECORDED.items() for name, text in texts.items()
                if name not in reason and re.search(rf"\bDYCL_OP_{row}\b", text)]


def test_jitter_knows_functions_by_their_own_names():
    """F.logsigmoid is called log_sigmoid: eager would stand as if no rounding could move it."""
    others = {"torch", "data"}  # of the sentences there
    for text in [value for value in vars(tolerance).values() if isinstance(value, str)]:
        for name in set(text.split()) - others:
            for found in (torch, torch.Tensor):
                for part in name.split("."):
                    found = getattr(found, part, None)
                if callable(found) and tolerance.class_of(name) != tolerance.TORCH:
                    assert jitter.class_of(found)[1] == tolerance.class_of(name), name


def of_all_parts(tmp_path_factory, part, counts):
    """Sums over all parts, for the last of them, whichever process ran the others; before that (1, 0). A part alone is
    too few pairs for a share."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # of this run, and of all its processes
    unfinished = folder / f"pairs_{part}.unfinished"
    unfinished.write_text(json.dumps(counts))
    unfinished.rename(unfinished.with_suffix(".json"))
    found = [json.loads(path.read_text()) for path in folder.glob("pairs_*.json")]
    return map(sum, zip(*found)) if len(found) == PARTS else (1, 0)


@pytest.mark.parametrize("part", range(PARTS))
def test_pairs(part, tmp_path_factory):
    found = []
    report = run.Report(found.append)
    cases = [(*pair, 1) for pair in run.all_pairs()] if FULL else run.bounded(1, COUNT)
    isas = run.isas()
    run.run_cases(cases[part::PARTS], run.setting_of(part, isas, None, None), report)
    assert not found, "".join(found)
    assert report.counts["equal"] > 0.9 * len(cases) / PARTS
    others = len(cases) / PARTS - len(report.half)  # much of 16 bits is left to torch
    recorded, others = of_all_parts(tmp_path_factory, part, [len(report.recorded - report.half), others])
    assert recorded > 0.75 * others


# ---- What the fuzzer would see


def _one_element(x):
    x = x.clone()
    x[1, 2] = torch.nextafter(x[1, 2], torch.tensor(9.0))
    return x


def _fails(x):
    raise RuntimeError("another")


MISTAKES = {
    "values": _one_element,
    "dtype": lambda x: x.double(),
    "sizes": lambda x: x[None].clone(),
    "strides": lambda x: x.t().contiguous().t(),
    "version": lambda x: x.clone().mul_(1),
    "type": lambda x: x.numpy().copy(),
    "error": _fails,
    "inputs": lambda x: (x.clone(), x.data[0].add_(1))[0],
    "aliasing": lambda x: x.data,
}


def _program():
    program = object.__new__(run.Program)
    program.producer, program.consumer = rows.ROWS["neg"], rows.ROWS["contiguous"]
    program.kind, program.floats, program.zeros, program.settings = (
        "grid",
        {"f32"},
        True,
        {"calls": 4, "pack": True, "rewrite": False},
    )
    program.constants, program.arguments = [], [("x1", "torch.arange(12.0).reshape(3, 4).div(4)")]
    program.lines, program.split, program.result = ["y = -x1", "z = -y"], 1, "z.clone()"
    program.source = f"def make():\n    return [{program.arguments[0][1]}]\n"
    program.source += "def program(x1):\n    y = -x1\n    z = -y\n    return z.clone()\n"
    return program


def test_what_is_right_is_equal():
    assert judge.judge(_program(), 0)[1] == "equal"


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_seen(kind, monkeypatch):
    monkeypatch.setattr(dycl, "accelerate", lambda function, **options: MISTAKES[kind])
    with pytest.raises(judge.Difference) as seen:
        judge.judge(_program(), 0)
    assert seen.value.kind == kind


@pytest.mark.parametrize("dtype, most", [("bf16", 2.0**-7), ("f16", 2.0**-10)])
def test_a_mistake_in_16_bits_is_seen(dtype, most, monkeypatch):
    """One rounding is none; what is sixteen of them off is one."""
    program = _program()
    program.producer, program.floats = rows.ROWS["softmax"], {dtype}
    program.source = program.source.replace(".div(4)", f".div(4).{'bfloat16' if dtype == 'bf16' else 'half'}()")
    program.source = program.source.replace("y = -x1", "y = x1.softmax(-1)")
    for factor in (1 + most, 1 + 16 * most):
        answer = lambda x: (-x.softmax(-1) * factor).clone()  # noqa: B023, E731
        monkeypatch.setattr(dycl, "accelerate", lambda function, **options: answer)  # noqa: B023
        monkeypatch.setattr(dycl, "stats", lambda function: {"replays": 0, "torch": 0})
        if factor < 1 + 2 * most:
            assert judge.judge(program, 0)[1] == "equal"
        else:
            with pytest.raises(judge.Difference, match="values"):
                judge.judge(program, 0)


def test_a_process_that_dies_is_laid_to_its_case():
    cases = [("a",), ("dies",), ("b",), ("hangs",), ("c",)]
    said = list(worker.run_chunk("tests.fuzz.pairs.dying", cases, worker.Setting("scalar", None, 1), patience=3))
    assert [case for case, _ in said] == cases
    assert [answer["outcome"] for _, answer in said] == ["a", "crash", "b", "hang", "c"]
