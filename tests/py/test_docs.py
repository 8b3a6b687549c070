"""The documents: lines that fit, links that lead somewhere, files that are there, every page in the site's list and
every decision in its index; the page of a benchmark's run."""

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
