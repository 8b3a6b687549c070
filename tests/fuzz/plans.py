"""Plans of random graphs under libFuzzer and the sanitizers, against the reference interpreter: `python -m tests.fuzz
plans [--seconds=N] [--corpus=DIR]`. The work is setup.py's `fuzz`, the fuzzer plan_fuzz.c."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(arguments):
    return subprocess.run([sys.executable, "setup.py", "--quiet", "fuzz", *arguments], cwd=ROOT).returncode
