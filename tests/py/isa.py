"""Programs with the kernels of another instruction set: in a process of their own, as the choice is made once."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest

import started

DEFINITION = pathlib.Path(__file__).resolve().parents[2] / "csrc" / "base" / "isa.def"
ISAS = re.findall(r"ROW\(x, y, \w+, (\w+),", DEFINITION.read_text())
VECTOR_ISAS = ISAS[1:]  # what is not compiled for the first of them is compiled for these


@functools.cache
def has(isa):
    """Whether dycl takes it where it is asked for."""
    asking = [sys.executable, "-c", "from dycl import _core; print(_core.info()['isa'])"]
    chosen = subprocess.run(asking, env={**os.environ, "DYCL_ISA": isa}, capture_output=True, text=True, check=True)
    return chosen.stdout.strip() == isa


def run_with(isa, *arguments, timeout=None, **environment):
    """Python with these arguments and variables, where the machine has the instruction set; what it printed and
    returned."""
    if not has(isa):
        pytest.skip(f"this machine has no {isa}")
    everything = dict(os.environ, DYCL_ISA=isa, **environment)
    if timeout and everything.get("DYCL_CHECK", "0") != "0":  # each segment is computed by definition, too
        timeout *= 10
    return started.run([*arguments], env=everything, timeout=timeout)
