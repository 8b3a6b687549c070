"""The tests against another torch: `python tests/other_torch.py VERSION [pytest's options]`, or `make test-torch
TORCH=VERSION`.

Makes an environment .venv-torch-VERSION beside the tree and runs the tests there, with the extension that was built in
place: it links nothing of torch. Where an index has a version as a CUDA build only, the libraries that this one is
linked with come too (about 4 GB, some minutes): nothing of them is used, but without them it cannot be imported. What
only compiles for GPUs (triton) stays away.
"""

import os
import pathlib
import re
import subprocess
import sys
import tomllib
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What torch asks for, by its own metadata.
WANTED = """
import importlib.metadata
for line in importlib.metadata.requires("torch") or []:
    name, _, marker = line.partition(";")
    if "extra" not in marker and not name.strip().lower().startswith("triton"):
        print(name.strip())
"""


def tools():
    """What dycl and its tests need beside torch and dycl itself, as pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + [name for name in project["optional-dependencies"]["test"]
                                      if not re.match(r"(torch|dycl)\b", name)]


def environment(version):
    """The interpreter of the environment, which is made where it is not there yet or not complete."""
    folder = ROOT / f".venv-torch-{version}"
    python, stamp = folder / "bin" / "python", folder / ".stamp"
    if not stamp.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", f"torch=={version}"], check=True)
        wanted = subprocess.run([python, "-c", WANTED], check=True, capture_output=True, text=True).stdout.split("\n")
        subprocess.run([*pip, *tools(), *filter(None, wanted)], check=True)
        stamp.touch()
    return python


def main(version, *options):
    python = environment(version)
    space = {**os.environ, "PYTHONPATH": str(ROOT), "DYCL_TRUST_TORCH": "1"}
    subprocess.run([python, "-c", "import torch; print('torch', torch.__version__)"], check=True)
    return subprocess.run([python, "-m", "pytest", "-q", *(options or ["tests/py"])], cwd=ROOT, env=space).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
