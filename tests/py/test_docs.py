"""The documents, and the comments of the sources: lines that fit, links that lead somewhere, files, names, targets and
commands that are there, every page in the site's list and every decision in its index; the page of a benchmark's run.
"""

import ast
import fnmatch
import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PLACES = ["", "csrc/", "docs/", "tests/", "tests/py/", "tests/c/"]


def prose(text):
    """Without blocks of code, in which anything may stand."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    heads = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", NAMES)
def test_lines_fit(name):
    long = [i for i, line in enumerate((ROOT / name).read_text().splitlines(), 1) if len(line) > 120]
    assert not long


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    page, wrong = ROOT / name, []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_named_are_there(name):
    wrong = []
    for path in re.findall(r"`((?:[\w.*-]+/)+[\w.*-]+\.(?:c|h|def|py|md|yml))\b", prose((ROOT / name).read_text())):
        if not any(next(ROOT.glob(place + path), None) for place in PLACES):
            wrong.append(path)
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_files_named_without_a_folder_are_there(name):
    """`ops.def`, `uncounted.c`, `test_saved.py`: of a room that the sentence speaks of, so anywhere."""
    known = {path.name for path in tracked()}
    # What is no file of ours: a program's own script, CPython's header.
    named = set(re.findall(r"`([\w.-]+\.(?:c|h|def|py|md))`", prose((ROOT / name).read_text()))) - {"Python.h"}
    assert not named - known - {"script.py"}


@pytest.mark.parametrize("name", NAMES)
def test_tests_that_are_named_are_there(name):
    """Also without their ending: `test_train_*`."""
    there = {path.stem for path in (*ROOT.glob("tests/py/*.py"), *ROOT.glob("tests/c/*.c"))}
    named = re.findall(r"\b(test_\w+\*?)", (ROOT / name).read_text())
    assert not [n for n in named if not any(fnmatch.fnmatch(t, n) for t in there)]


@functools.cache
def tracked():
    folders = ("csrc", "dycl", "tests", "benchmarks", "examples", "docs")
    found = [*ROOT.glob("*.py"), *ROOT.glob("*.md"), *(p for folder in folders for p in ROOT.glob(f"{folder}/**/*.*"))]
    assert len(found) > 500
    return found


@functools.cache
def words_of_the_code():
    """Without comments of C."""
    words = set()
    for path in tracked():
        if path.suffix in (".c", ".h", ".def", ".py"):
            text = path.read_text()
            words.update(re.findall(r"\w+", re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
                                    if path.suffix != ".py" else text))
    return words


def names_that_are_gone(text):
    """Functions, types and variables of ours. dycl_infer_<name> stands for all that begin so."""
    words = words_of_the_code()
    named = set(re.findall(r"\b((?:dycl|DYCL)_\w+)(?!\w*[*<])", text))
    return [n for n in named if n not in words and not (n.endswith("_") and any(w.startswith(n) for w in words))]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_code_are_there(name):
    assert not names_that_are_gone((ROOT / name).read_text())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_of_a_python_file_is_there(name):
    """`_SERVED_TORCH` in `dycl/_optimizer.py`, `dycl.accelerate_all`."""
    text, wrong = " ".join(prose((ROOT / name).read_text()).split()), []
    for inner, path in re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", text):
        if (ROOT / path).exists() and not re.search(rf"\b{inner}\b", (ROOT / path).read_text()):
            wrong.append(f"{inner} in {path}")
    modules = {path.stem for path in ROOT.glob("dycl/*.py*")} | {"_core"}
    for inner in re.findall(r"`dycl\.(\w+)", text):
        if inner not in PUBLIC | modules | LOGGERS:
            wrong.append(f"dycl.{inner}")
    assert not wrong


PUBLIC = {name for node in ast.parse((ROOT / "dycl" / "__init__.py").read_text()).body
          if isinstance(node, ast.Assign) and node.targets[0].id == "__all__" for name in ast.literal_eval(node.value)}
LOGGERS = {"graph", "fuse", "plan"}  # named in docs/debug.md


@pytest.mark.parametrize("name", NAMES)
def test_commands_are_there(name):
    """Targets of make, modules that are run, and their options."""
    text, wrong = (ROOT / name).read_text(), []
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"(?:`|^)(?:\w+=\w+ )*make ([a-z][a-z-]*)", text, re.MULTILINE):
        if target not in targets:
            wrong.append(f"make {target}")
    for module, rest in re.findall(r"python -m ((?:benchmarks|tests|dycl)[\w.]*)([^`\n#]*)", text):
        path = ROOT / module.replace(".", "/")
        files = [path.with_suffix(".py")] if path.with_suffix(".py").exists() else sorted(path.rglob("*.py"))
        known = "".join(file.read_text() for file in files)
        wrong += [f"{module}{option}" for option in re.findall(r" --[a-z]+", rest) if f'"{option[1:]}"' not in known]
        if not files:
            wrong.append(module)
    for script in re.findall(r"python ((?:tests|examples|benchmarks)/[\w/]+\.py)", text):
        if not (ROOT / script).exists():
            wrong.append(script)
    assert not wrong


COMMENTED = [path for path in sorted((ROOT / "csrc").rglob("*")) if path.suffix in (".c", ".h", ".def")]


def test_comments_name_what_is_there():
    """A file of another folder with its path, from csrc, from its layer or from the root: who reads looks there."""
    wrong = []
    definitions = {path.name for path in COMMENTED if path.suffix == ".def"}
    for path in COMMENTED:
        text = " ".join(re.findall(r"/\*.*?\*/", path.read_text(), re.DOTALL))
        places = [path.parent, ROOT / "csrc", ROOT / "csrc" / path.relative_to(ROOT / "csrc").parts[0], ROOT]
        for file in re.findall(r"(?<![\w/.<>])((?:[\w-]+/)*[\w-]+\.(?:c|h|def|py|md))\b", text):
            others = file.startswith(("torch/", "ATen/", "c10/", "tools/")) or file in definitions
            if not others and not any((place / file).exists() for place in places):
                wrong.append(f"{path.relative_to(ROOT)}: {file}")
        wrong += [f"{path.relative_to(ROOT)}: {gone}" for gone in names_that_are_gone(text)]
    assert not wrong


def test_every_page_is_in_the_site():
    listed = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("*.md")} | {"decisions/index.md"}
    assert listed == pages
    index = (ROOT / "docs" / "index.md").read_text()
    assert not [page for page in pages - {"index.md"} if f"]({page})" not in index]


def test_every_decision_is_in_the_index():
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        title = page.read_text().splitlines()[0].removeprefix("# ")
        assert page.name == "index.md" or f"[{title}]({page.name})" in index, page.name


# ---- The page of a run


def run():
    """What benchmarks/report.py writes as JSON, of two workloads."""
    def peer(state, median, settled=None):
        return {"state": state, "reason": "", "first_s": 0.1, "settled_s": settled, "minimum_ns": median,
                "median_ns": median}

    summary = {"first_call_s": 0.2, "steady_s": 0.5, "dycl_to_limit_median": None}
    return {
        "day": "2026-01-02", "machine": {"cpu": "A <Fast> CPU", "cpus": 2, "python": "3.11.7", "system": "Linux"},
        "threads": 2,
        "versions": {"torch": "2.13.0", "openvino": None}, "plan": {"rounds": 9}, "limit": {"error": "no compiler"},
        "workloads": {
            "mlp": {"title": "MLP | small", "dycl": summary,
                    "peers": {"eager": peer("right", 4e6), "dycl": peer("right", 1e6, 0.5),
                              "onnxruntime": peer("right", 2e6, 4.0),
                              "openvino": peer("wrong", 1e5)}},
            "bert": {"title": "BERT", "dycl": None,
                     "peers": {"eager": peer("right", 8e6), "dycl": peer("error", None)}},
        },
    }


def test_the_page_of_a_run(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(run()))
    (tmp_path / "README.md").write_text((ROOT / "docs" / "performance" / "README.md").read_text())
    for _ in range(2):  # again gives the same
        done = subprocess.run([sys.executable, "-m", "benchmarks.page", str(tmp_path / "run.json"), "--to",
                               str(tmp_path)], cwd=ROOT,
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    name = "2026-01-02-a-fast-cpu"
    assert done.stdout.strip() == str(tmp_path / f"{name}.md")
    page = (tmp_path / f"{name}.md").read_text()
    assert "| MLP \\| small | 4 | 1 | 4 | 2 ONNX Runtime | 2 |" in page, "a wrong result is no peer"
    assert "| BERT | 8 | error | - | - | - |" in page and "Geometric mean of *longer*: 2." in page
    assert page.startswith("# Run of 2026-01-02\n") and "A <Fast> CPU" in page and "openvino not installed" in page
    assert all(len(line) <= 120 for line in page.splitlines())
    for kind in ("speed", "steady"):
        assert f"({name}-{kind}.svg)" in page
        picture = ElementTree.parse(tmp_path / f"{name}-{kind}.svg")
        texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert "MLP | small" in texts and "dycl" in texts and "BERT" not in texts
    speeds = [text for text in texts if text.endswith(" s")]
    assert sorted(speeds) == ["0.5 s", "4 s"]
    assert (tmp_path / "README.md").read_text().count(f"({name}.md)") == 1


def test_compile_commands_are_the_builds(tmp_path):
    """Without oneDNN's headers there is no build either."""
    text = (ROOT / "setup.py").read_text()
    assert '"arguments": tools.command(source)' in text, "the command that compiles is the one that is written"
    assert "/compile_commands.json" in (ROOT / ".gitignore").read_text().splitlines()
    done = subprocess.run([sys.executable, "setup.py", "--quiet", "compile_commands"], cwd=ROOT, capture_output=True,
                          text=True, timeout=120)
    if done.returncode:
        pytest.skip(done.stderr.splitlines()[-1])
    rows = {row["file"]: row["arguments"] for row in json.loads((ROOT / "compile_commands.json").read_text())}
    kernel = rows[str(ROOT / "csrc" / "kern" / "ew__avx512.c")]
    assert "-mavx512f" in kernel and "-c" in kernel and str(ROOT / "tests" / "c" / "test_ir.c") in rows
