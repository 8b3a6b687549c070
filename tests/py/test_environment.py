"""Variables of the environment: what dycl does not know it says once, and goes on as if it were not set; what DYCL_LOG
shows."""

import os
import pathlib
import re

import pytest

import started

from dycl import _environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, torch, dycl
f = dycl.accelerate(lambda x, y: (x + y) * (x + y) + (y + x).exp().softmax(-1) - x.neg().neg())
x, y = torch.rand(4, 5), torch.rand(4, 5)
expected = (x + y) * (x + y) + (y + x).exp().softmax(-1) - x
with torch.no_grad():
    for _ in range(3):
        assert torch.allclose(f(x, y), expected, rtol=1e-5, atol=1e-6)
dycl.accelerate(lambda x: x)
print(dycl.info()["isa"], dycl.stats(f)["calls"])
"""


def start(program, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("DYCL_") or name == "DYCL_TRUST_TORCH"} | {"DYCL_PROFILE": "0"} | variables
    done = started.run(["-c", program], env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def complaints(**variables):
    """What would be told, without the time that torch needs to start, and the instruction set."""
    out = start("from dycl import _core, _environment; print(*_environment.complaints(_core), _core.info()['isa'], "
                "sep='\\n')", **variables).stdout.splitlines()
    return out[:-1], out[-1]


def run(**variables):
    done = start(PROGRAM, **variables)
    return done.stdout.split(), [line.partition("RuntimeWarning: ")[2] for line in done.stderr.splitlines()
                                 if "RuntimeWarning" in line], done.stderr


@pytest.mark.parametrize("name, value, said", [
    ("DYCL_ISA", "avx9", "DYCL_ISA=avx9 is ignored: it may be scalar, avx2 or avx512"),
    ("DYCL_ISA", "AVX2", "DYCL_ISA=AVX2 is ignored: it may be scalar, avx2 or avx512"),
    ("DYCL_MEASURE", "1x", "DYCL_MEASURE=1x is ignored: it may be a number from 0 to 5"),
    ("DYCL_MEASURE", "-1", "DYCL_MEASURE=-1 is ignored: it may be a number from 0 to 5"),
    ("DYCL_MEASURE", "99999999999999999999", "DYCL_MEASURE=99999999999999999999 is ignored: it may be a number from 0 "
                                             "to 5"),
    ("DYCL_AHEAD", "yes", "DYCL_AHEAD=yes is ignored: it may be 0 or 1"),
    ("DYCL_CHOOSE", "2", "DYCL_CHOOSE=2 is ignored: it may be 0 or 1"),
    ("DYCL_REPLAY", "x", "DYCL_REPLAY=x is ignored: it may be 0 or 1"),
    ("DYCL_PUBLIC_API", "2", "DYCL_PUBLIC_API=2 is ignored: it may be 0 or 1"),
    ("DYCL_CHECK", "-1", "DYCL_CHECK=-1 is ignored: it may be a number"),
    ("DYCL_CHECK", "1e", "DYCL_CHECK=1e is ignored: it may be a number"),
    ("DYCL_CHOSE", "0", "DYCL_CHOSE is ignored: is DYCL_CHOOSE meant?"),
    ("DYCL_LOG", "cse,fuze", "DYCL_LOG=fuze: there is no such topic; the topics are graph, dce, "),
    ("DYCL_LOG", "grap", "DYCL_LOG=grap: there is no such topic"),
    ("DYCL_LOG", "x" * 5000, "DYCL_LOG=" + "x" * 60 + ": there is no such topic"),
    ("DYCL_DEBUG", "cse", "DYCL_DEBUG is ignored: is DYCL_LOG meant?"),
    ("DYCL_ISA", "avx" + "x" * 5000, "DYCL_ISA=avx" + "x" * 57 + " is ignored: it may be scalar, avx2 or avx512"),
])
def test_what_is_not_known_is_told(name, value, said):
    told, isa = complaints(**{name: value})
    assert len(told) == 1 and told[0].startswith(said), told
    assert isa == complaints()[1], "and nothing changes"


def test_it_is_told_once_and_the_program_goes_on():
    out, warnings, text = run(DYCL_ISA="avx9", DYCL_MEASURE="x", DYCL_AHEAD="x", DYCL_CHOOSE="x", DYCL_LOG="x",
                              DYCL_CHOSE="0")
    assert len(warnings) == 6 and all(w.startswith("dycl: DYCL_") for w in warnings) and out[1] == "3", warnings
    assert text.count("<string>:3:") == 6, "at the line of the program that first needs dycl"


@pytest.mark.parametrize("variables", [
    {}, {"DYCL_ISA": ""}, {"DYCL_ISA": "scalar"}, {"DYCL_MEASURE": "0"}, {"DYCL_MEASURE": "5"}, {"DYCL_AHEAD": "1"},
    {"DYCL_AHEAD": ""}, {"DYCL_CHOOSE": "0"}, {"DYCL_CHOOSE": "1"},
    {"DYCL_CHECK": "1"}, {"DYCL_CHECK": "1e9"}, {"DYCL_DISABLE": "0"}, {"DYCL_DISABLE": ""}, {"DYCL_DISABLE": "No"},
    {"DYCL_PROFILE": "off"}, {"DYCLING": "1"}, {"DYCL_HOME_OF_ANOTHER_PROGRAM": "1"},
])
def test_what_is_known_is_not_told(variables):
    told, isa = complaints(**variables)
    assert not told and variables.get("DYCL_ISA") in (None, "", isa)


@pytest.mark.parametrize("value, warned", [("1", 0), ("ON", 0), ("nein", 1)])
def test_whoever_sets_disable_gets_it(value, warned):
    out, warnings, _ = run(DYCL_DISABLE=value)
    assert out[1] == "0" and len(warnings) == warned, warnings


def test_an_instruction_set_that_the_processor_has_not():
    sets = ["scalar", "avx2", "avx512"]
    best = sets.index(complaints()[1])
    for i, name in enumerate(sets):
        told, isa = complaints(DYCL_ISA=name)
        assert isa == sets[min(i, best)]
        assert told == ([] if i <= best else [f"DYCL_ISA={name} is ignored: this processor has {sets[best]} at best"])


def test_every_variable_is_in_the_table():
    """A new one that is read past base/env.h, or that the table does not name, would be silent again."""
    known = {name for names in _environment.NAMES.values() for name in names}
    read = re.compile(
        r"(?:getenv|dycl_env_\w+)\(\"(DYCL_\w+)\"|"
        r"(?:environ(?:\.get|\.setdefault)?|switch|switched_on)[\[(]\"(DYCL_\w+)\"")
    found, past = set(), []
    for path in [*ROOT.glob("csrc/**/*.c"), *ROOT.glob("csrc/**/*.h"), *ROOT.glob("dycl/*.py"),
                 *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py"), ROOT / "setup.py"]:
        text = path.read_text()
        found |= {a or b for a, b in read.findall(text)}
        if path.suffix != ".py" and "getenv(" in text and path.name not in ("env.c", "log.c"):
            past.append(path.name)
    assert found <= known and not past
    assert {"DYCL_ISA", "DYCL_MEASURE", "DYCL_AHEAD", "DYCL_LOG", "DYCL_CHOOSE", "DYCL_DISABLE",
            "DYCL_PROFILE"} <= found, "the expression finds them"
    told = re.findall(r"^\| `(DYCL_\w+)` \|", (ROOT / "docs" / "environment.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(known)


# ---- DYCL_LOG: the texts themselves are test_debug.py's

PASSES = re.findall(r'^    \{"(\w+)", dycl_\w+, (\d), (\d), ', (ROOT / "csrc/opt/pipeline.c").read_text(), re.MULTILINE)


def shown(text):
    """Per program: the pass, cold or tuned, and per live node's value its operator and operands."""
    out = []
    for name, plan, body in re.findall(r"^# segment \w+, after (\w+) \((\w+) plan\):\n((?:%.*\n|# block .*\n)*)", text,
                                       re.MULTILINE):
        nodes = {m[1]: (m[2], re.findall(r"%\d+", m[3]))
                 for m in re.finditer(r"^(%\d+) = (\w+)((?: %\d+| _)*)", body, re.MULTILINE)}
        assert all(o in nodes for _, operands in nodes.values() for o in operands), body
        out.append((name, plan, [op for op, _ in nodes.values() if op not in ("feed", "scalar", "view")], body))
    return out


@pytest.mark.parametrize("value", ["all", "all,stderr"])
def test_all_passes_show_every_live_node(value):
    text = run(DYCL_LOG=value, DYCL_CHOOSE="0")[2]
    programs = shown(text)
    assert [(name, plan) for name, plan, _, _ in programs] == \
        [(name, "cold") for name, cold, _ in PASSES if cold == "1"] + [(name, "tuned") for name, _, tuned in PASSES
                                                                       if tuned == "1"], text
    assert len(PASSES) >= 14 and all(ops for _, _, ops, _ in programs)
    recorded = ["add", "add", "mul", "add", "exp", "softmax", "add", "neg", "neg", "sub"]
    cold = [ops for _, plan, ops, _ in programs if plan == "cold"]
    assert all(ops == recorded for ops in cold), "nothing vanishes from a cold plan here"
    tuned = {name: ops for name, plan, ops, _ in programs if plan == "tuned"}
    assert tuned["order"] == ["add", "square", "exp", "softmax", "add", "sub"], \
        "common subexpressions and cancellations are gone"
    assert "# block 0: tile" in [body for name, plan, _, body in programs if (name, plan) == ("fuse", "tuned")][0]
    assert [len(re.findall(what, text)) for what in ("as recorded:\n%0", ", cold plan: 10 steps",
                                                     ", tuned plan: 1 steps")] == [2, 1, 1]


def test_some_topics():
    text = run(DYCL_LOG="cse,,order", DYCL_CHOOSE="0")[2]
    assert [name for name, _, _, _ in shown(text)] == ["order", "cse", "cse", "order"]
    assert "as recorded" not in text and "steps" not in text
    text = run(DYCL_LOG="plan", DYCL_CHOOSE="0")[2]
    assert not shown(text) and text.count(" steps") == 2


def test_nothing_is_shown_unasked():
    assert not run(DYCL_CHOOSE="0")[2]


def test_an_environment_of_another_torch_asks_for_no_torch(monkeypatch):
    """Neither by its name nor as an extra of dycl: pip would put the pinned version in its place, or fail."""
    monkeypatch.syspath_prepend(ROOT / "tests")
    import other_torch
    assert "pytest" in {re.match(r"[\w-]+", name)[0] for name in other_torch.tools()}
    assert not [name for name in other_torch.tools() if re.match(r"(torch|dycl)\b", name)]
