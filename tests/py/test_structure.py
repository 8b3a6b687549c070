"""The layers of csrc: includes point only upwards, and only csrc/py sees Python, only csrc/dnnl sees oneDNN."""

import io
import pathlib
import re
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2] / "csrc"
LAYERS = ["base", "kern", "ir", "check", "record", "grad", "opt", "dnnl", "exec", "py"]
# The rooms of the two largest layers: here, too, includes point only upwards (docs/structure.md says what each
# holds). What stands in the layer's own folder sets the rooms up and sees all of them.
ROOMS = {
    "exec": ["tune", "pack", "plan", "builder", "tile", "matmul", "conv", "move", "host", "cache"],
    "py": ["cpython", "torch", "site", "memory", "region", "bind", "intercept", "modules", "entry"],
}
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


def room(path):
    """The folder of a file, two levels deep in the layers that have rooms."""
    parts = pathlib.PurePath(path).parts
    return "/".join(parts[:2]) if parts[0] in ROOMS and len(parts) > 2 else parts[0]


def test_rooms_are_those_of_the_documentation():
    text = (ROOT.parent / "docs" / "structure.md").read_text()
    for layer, rooms in ROOMS.items():
        assert sorted(p.name for p in (ROOT / layer).iterdir() if p.is_dir()) == sorted(rooms)
        assert re.findall(rf"^\| `{layer}/(\w+)/` \|", text, re.MULTILINE) == rooms


def test_rooms_have_an_order():
    wrong = []
    for path in sources():
        own = room(path.relative_to(ROOT))
        layer, _, name = own.partition("/")
        for kind, included in includes(path):
            other = room(included) if kind == '"' else ""
            if not other.startswith(layer + "/") or not name:
                continue
            if ROOMS[layer].index(other.partition("/")[2]) > ROOMS[layer].index(name):
                wrong.append(f"{path.relative_to(ROOT)} includes {included}")
    assert not wrong


def unit(path):
    """A .c, its .h and its .def are one."""
    return str(pathlib.PurePath(path).with_suffix(""))


def circles(edges):
    """The strongly connected components of more than one unit: those that reach each other."""
    reached = {}
    for start in edges:
        found, waiting = set(), [start]
        while waiting:
            for other in edges.get(waiting.pop(), ()):
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        reached[start] = found
    return {frozenset({a} | {b for b in reached[a] if a in reached.get(b, ())}) for a in edges if a in reached[a]}


def test_no_circle_of_includes_spans_rooms():
    edges = {}
    for path in sources():
        own = unit(path.relative_to(ROOT))
        edges.setdefault(own, set()).update(
            unit(name) for kind, name in includes(path) if kind == '"' and unit(name) != own and (ROOT / name).exists())
    wrong = [sorted(circle) for circle in circles(edges) if len({room(one + ".c") for one in circle}) > 1]
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
    silent = [str(p.relative_to(ROOT)) for p in sources() if p.suffix == ".h"
              and not p.read_text().lstrip().startswith("/*")]
    assert not silent


def test_locks_are_where_a_fork_finds_them():
    """A lock that a fork does not take may be held for ever in the child (the runner's is made anew there)."""
    own = [str(p.relative_to(ROOT)) for p in sources()
           if re.search(r"pthread_(mutex|rwlock|spinlock)_t|PTHREAD_MUTEX|sem_t\b", p.read_text())]
    assert sorted(own) == ["base/lock.c", "exec/plan/ahead.c"]


def texts_of(path):
    """Lines of texts that stand in several lines: programs that tests start, tables that are printed. A line's end in
    them is part of what they say. What documents a function or a module is none of them."""
    rows, before, begin = set(), None, None
    skipped = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            begin = token.start[0]
        elif kind in ("STRING", "FSTRING_END") and before not in (None, tokenize.NEWLINE):
            first = token.start[0] if kind == "STRING" else begin
            rows |= set(range(first, token.end[0] + 1)) if token.end[0] > first else set()
        if token.type not in skipped:
            before = token.type
    return rows


def test_lines_fit():
    """`make format` keeps the sources of C so. Rows of hosted.def have what torch's schema has: they are read across,
    and a row in two lines would be compared with its neighbours by nobody."""
    project = ROOT.parent
    places = [*project.glob("*.py"), *ROOT.rglob("*.def"), *ROOT.rglob("*.[ch]"), *project.glob("tests/**/*.[ch]"),
              *(path for folder in ("dycl", "tests", "benchmarks", "examples")
                for path in project.glob(f"{folder}/**/*.py"))]
    long = []
    for path in places:
        found = [i for i, line in enumerate(path.read_text().splitlines(), 1)
                 if len(line) > 120 and not (path.name == "hosted.def" and line.startswith("DYCL_HOSTED("))]
        texts = texts_of(path) if found and path.suffix == ".py" else ()
        long += [f"{path.relative_to(project)}:{i}" for i in found if i not in texts]
    assert len(places) > 300 and not long


FUNCTION = re.compile(r"^[A-Za-z_][^;={}]*\) \{\n.*?^\}$", re.MULTILINE | re.DOTALL)


def test_functions_are_short():
    """At most 80 lines: one that is longer does more than one thing."""
    found = [(path, m) for path in ROOT.rglob("*.[ch]") for m in FUNCTION.finditer(path.read_text())]
    assert len(found) > 2000
    long = [f"{path.relative_to(ROOT)}: {m.group().splitlines()[0]}" for path, m in found
            if m.group().count("\n") >= 80]
    assert not long
