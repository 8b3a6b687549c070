"""The layers of csrc: includes point only upwards, and only csrc/py sees Python, only csrc/dnnl sees oneDNN."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2] / "csrc"
LAYERS = ["base", "kern", "ir", "check", "record", "opt", "dnnl", "exec", "py"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def sources():
    found = [p for p in ROOT.rglob("*") if p.suffix in (".c", ".h", ".def")]
    assert len(found) > 50
    return found


def includes(path):
    return INCLUDE.findall(path.read_text())


def test_includes_point_upwards():
    wrong = []
    for path in sources():
        own = LAYERS.index(path.relative_to(ROOT).parts[0])
        for kind, name in includes(path):
            layer = name.split("/")[0]
            if kind == '"' and layer in LAYERS and LAYERS.index(layer) > own:
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong


def test_only_py_sees_python_and_only_dnnl_sees_onednn():
    wrong = []
    for path in sources():
        layer = path.relative_to(ROOT).parts[0]
        for _, name in includes(path):
            if name in ("Python.h", "structmember.h") and layer != "py":
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
            if name.startswith(("oneapi/", "dnnl.h")) and layer != "dnnl":
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
            if name.startswith(("torch/", "ATen/", "c10/")):
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong


def test_every_public_header_opens_with_a_comment():
    silent = [str(p.relative_to(ROOT)) for p in sources() if p.suffix == ".h" and not p.read_text().lstrip().startswith("/*")]
    assert not silent


def test_locks_are_where_a_fork_finds_them():
    """A lock that a fork does not take may be held for ever in the child (the runner's is made anew there)."""
    own = [str(p.relative_to(ROOT)) for p in sources() if re.search(r"pthread_(mutex|rwlock|spinlock)_t|PTHREAD_MUTEX|sem_t\b", p.read_text())]
    assert sorted(own) == ["base/lock.c", "exec/plan/ahead.c"]


def test_lines_fit():
    """`make format` keeps the sources of C so; tables (*.def) have rows as long as they need."""
    long = [f"{path}:{i}" for folder in (ROOT, ROOT.parent / "tests") for path in folder.rglob("*.[ch]")
            for i, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
    assert not long
