"""Do the tests see mistakes? `python -m tests.mutations [--only TEXT] [--first N]` puts each of mistakes.py into a copy
of the tree, builds it and runs the tests that are said to see it. A line for each: which one did. Exit status 1 when
a mistake was not seen. Meant for a tree whose tests pass."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

from tests.mutations.mistakes import MISTAKES

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "mutations"
BUILD_S, TEST_S = 900, 900  # a test that does not end has seen something


def copy_tree(place):
    """The tree as it is, beside what earlier runs built there."""
    for name in ("csrc", "dycl", "tests", "examples", "benchmarks", "docs"):
        shutil.rmtree(place / name, ignore_errors=True)
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, place / path.name)


def run(place, *command, seconds):
    """(exit status, what was printed); status None: no end."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    try:
        done = subprocess.run(command, cwd=place, env=environment, text=True, timeout=seconds, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return None, ""


def build(place, c_tests):
    command = ["ctest", "--build-only", f"--only={','.join(c_tests)}"] if c_tests else ["build_ext", "--inplace"]
    status, text = run(place, sys.executable, "setup.py", "--quiet", *command, seconds=BUILD_S)
    if status:
        sys.exit(f"mutations: does not build\n{text}")


def sees(place, test):
    """Whether this test fails, and the first line that says so."""
    kind, name = test.split("/")
    if kind == "c":
        build(place, [f"test_{name}.c"])
        status, text = run(place, sys.executable, "setup.py", "--quiet", "ctest", f"--only=test_{name}.c",
                           seconds=TEST_S)
    else:
        build(place, None)
        status, text = run(place, sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
                           f"tests/py/test_{name}.py", seconds=TEST_S)
    lines = [line for line in text.splitlines() if line.startswith("FAILED") or "FAIL" in line or "Fatal" in line]
    return status != 0, "no end" if status is None else lines[0] if lines else f"status {status}"


def look_at(place, mistake):
    """The test that saw it and what it said, or None."""
    path = place / "csrc" / mistake.path
    text = path.read_text()
    assert text.count(mistake.old) == 1, mistake.name
    path.write_text(text.replace(mistake.old, mistake.new))
    try:
        for test in mistake.seen_by.split():
            seen, what = sees(place, test)
            if seen:
                return test, what
        return None
    finally:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", default="", help="mistakes whose name or path contains this")
    parser.add_argument("--first", type=int, default=0, help="the first one to look at")
    options = parser.parse_args()
    chosen = [m for m in MISTAKES[options.first:] if options.only in m.name or options.only in m.path]
    PLACE.mkdir(parents=True, exist_ok=True)
    copy_tree(PLACE)
    unseen = 0
    for mistake in chosen:
        began = time.monotonic()
        found = look_at(PLACE, mistake)
        unseen += not found
        print(f"{'seen by ' + found[0] if found else 'NOT SEEN'} ({time.monotonic() - began:.0f} s): {mistake.path}, "
              f"{mistake.name}" + (f"; {found[1][:160]}" if found else ""), flush=True)
    print(f"{len(chosen)} mistakes, {unseen} not seen")
    return unseen != 0


if __name__ == "__main__":
    sys.exit(main())
