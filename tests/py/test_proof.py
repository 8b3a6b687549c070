"""A torch that dycl's tests do not know is proven by a self-test in a process of its own, once for a build; what fails
it runs in torch."""

import os
import sys

import dycl
import started
import pytest
import torch
from dycl import _proof, _selftest
from suite import FULL

PROGRAM = """
import torch, warnings
torch.__version__ = "2.99.1"
import dycl
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    f = dycl.accelerate(lambda x: x + 1)
    dycl.accelerate(torch.nn.Linear(2, 2))
with torch.no_grad():
    assert f(torch.ones(2)).tolist() == [2.0, 2.0]
print(dycl.stats(f)["calls"], *(f"{x.category.__name__} {x.message}" for x in caught), sep="; ")
"""


@pytest.fixture
def run(tmp_path):
    def start(child="", **environment):
        """child: what the process of the self-test does before it."""
        (tmp_path / "sitecustomize.py").write_text(f"import os\nif os.environ.get('DYCL_TRUST_TORCH'):\n    "
                                                   f"{child or 'pass'}\n")
        package = os.path.dirname(os.path.dirname(dycl.__file__))
        trusting_nobody = {name: value for name, value in os.environ.items() if name != "DYCL_TRUST_TORCH"}
        space = {**trusting_nobody, "PYTHONPATH": f"{tmp_path}{os.pathsep}{package}", "DYCL_CHOOSE": "0",
                 "DYCL_PROFILE": str(tmp_path / "kept" / "profile"), **environment}
        done = started.run(["-c", PROGRAM], env=space, timeout=200, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return start


def test_what_passes_is_accelerated_and_said_once(run, tmp_path):
    said = run()
    assert said.startswith("1; RuntimeWarning dycl was not tested with torch 2.99.1") and "self-test passed" in said \
        and said.count("Warning") == 1
    (kept,) = (tmp_path / "kept" / "proofs").iterdir()
    before = kept.stat().st_mtime_ns
    assert run(child="os._exit(3)") == "1"  # no second self-test, no second word
    assert kept.stat().st_mtime_ns == before
    kept.write_text("{")
    assert "self-test passed" in run()  # damaged: proven again


@pytest.mark.parametrize(
    "child, why",
    (
        ("import signal; signal.raise_signal(signal.SIGSEGV)", "ends with signal 11"),
        ("os._exit(3)", "ends with status 3"),
        ("import dycl; dycl.accelerate = lambda f: lambda *x: 0", "views (call 1)"),
        ("import dycl; dycl.accelerate = lambda f: f; dycl.stats = lambda f: {'calls': 0}", "nothing is recorded"),
    ),
)
def test_what_fails_runs_in_torch(run, child, why):
    for _ in range(2):  # the second process knows
        said = run(child=child)
        assert said.startswith("0; RuntimeWarning dycl does not accelerate here, programs run in torch: torch 2.99.1") \
            and why in said and said.count("Warning") == 1


# Of what training depends on: formulas, names, and how torch is asked for these.
BROKEN = (
    ("a._gradients, real = lambda *x: [g if g is None else 2 * g for g in real(*x)], a._gradients", "steps"),
    ("a._apply_of, real = lambda f, name: real(f, name and 'Backward'), a._apply_of", "steps"),
    ("a._core.set_names(lambda *x: ('TBackward0', 0), n.operand, n.view, a.show)", "steps"),
)


@pytest.mark.parametrize("broken, why", BROKEN if FULL else BROKEN[:1])
def test_where_training_fails_only_training_runs_in_torch(run, broken, why):
    child = f"import dycl._autograd as a, dycl._names as n; {broken}"
    said = run(child=child)
    assert said.startswith("1; RuntimeWarning dycl was not tested with torch 2.99.1, and its self-test of training "
                           f"fails: training: {why}") and said.count("Warning") == 1
    assert run(child=child, DYCL_TRAIN="0") == "1"  # that was proven beside it


def test_what_else_stands_in_the_path(monkeypatch, tmp_path):
    """Paths that are no strings: Python passes them over, so does the self-test."""
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, None, os.fsencode(tmp_path)])
    assert not _proof._try(False)


def test_trusted_by_the_environment(run, tmp_path):
    assert run(DYCL_TRUST_TORCH="1") == "1" and not (tmp_path / "kept" / "proofs").exists()


def test_nothing_is_kept_without_a_profile(run, tmp_path):
    assert "self-test passed" in run(DYCL_PROFILE="0") and not (tmp_path / "kept").exists()


def test_programs_say_something():
    """One that fails in eager too would prove nothing."""
    outcomes = {name: _selftest._outcome(torch, program) for name, program in _selftest.programs(torch).items()}
    assert len(outcomes) >= 25 and [name for name, outcome in outcomes.items() if outcome[0] == "error"] == ["errors"]


def test_this_torch_passes():
    assert _selftest.failed() == ""


ORDERS = [(ours, torchs) for ours in ("scalar", "avx2") for torchs in ("default", "avx2", "avx512")]


@pytest.mark.parametrize("ours, torchs", ORDERS if FULL else ORDERS[:1])
def test_no_order_of_sums_is_a_failure(ours, torchs):
    """Sets of instructions add in other orders: sums are near, and no text of one is compared."""
    space = {**os.environ, "DYCL_TRUST_TORCH": "1", "DYCL_ISA": ours, "ATEN_CPU_CAPABILITY": torchs}
    done = started.run(["-c", "from dycl import _selftest; print(repr(_selftest.failed()))"], env=space, timeout=200)
    assert done.stdout.strip() == "''", done.stderr
