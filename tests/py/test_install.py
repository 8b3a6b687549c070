"""Where dycl cannot work it says so once, and programs run in torch: no oneDNN, one that is too old."""

import os
import shutil
import subprocess
import sysconfig

import dycl
import started
import pytest

PROGRAM = """
import sys, warnings
{before}
import torch, dycl
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model, f = dycl.accelerate(torch.nn.Linear(2, 2)), dycl.accelerate(lambda x: x + 1)
    dycl.accelerate_all()
with torch.no_grad():
    assert f(torch.ones(2)).tolist() == [2.0, 2.0] and model(torch.ones(1, 2)).shape == (1, 2)
assert "_compiled_call_impl" not in vars(model)
for x in caught:
    print(x.category.__name__, x.message)
print(dycl.stats(f)["calls"], dycl.explain(model))
dycl.disable()
dycl.enable()
dycl.info()
"""


def run(folder, before="", **environment):
    done = started.run(["-c", PROGRAM.format(before=before)],
                       env={**os.environ, "PYTHONPATH": str(folder), **environment}, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stderr
    said, *rest = done.stdout.strip().splitlines()
    assert said.startswith("RuntimeWarning dycl does not accelerate here, programs run in torch: ")
    assert len(rest) == 1 and rest[0].startswith("0 dycl does not accelerate here"), rest
    return said


@pytest.fixture
def package():
    return os.path.dirname(os.path.dirname(dycl.__file__))


def test_no_onednn(package, tmp_path):
    shutil.copytree(os.path.join(package, "dycl"), tmp_path / "dycl")
    # there may be others, for other Pythons
    core = tmp_path / "dycl" / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    binary = core.read_bytes()
    assert binary.count(b"libdnnl.so.3\0") == 1
    core.write_bytes(binary.replace(b"libdnnl.so.3\0", b"libdnnl.so.0\0"))  # a library that is nowhere
    said = run(tmp_path)
    assert "libdnnl.so.0" in said and "is oneDNN installed?" in said


def test_another_reason(package, tmp_path):
    """Nobody is sent to look for oneDNN where something else is missing."""
    shutil.copytree(os.path.join(package, "dycl"), tmp_path / "dycl")
    core = tmp_path / "dycl" / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    core.write_text("no library")
    said = run(tmp_path)
    assert str(core.name) in said and "oneDNN" not in said


@pytest.mark.parametrize("version, runtime, text", (("3, 1", 2, "oneDNN 3.1.0 is too old"), ("2, 9", 2, "too old"),
                                                    ("3, 9", 4, "was not built for OpenMP")))
def test_another_onednn(package, tmp_path, version, runtime, text):
    compiler = sysconfig.get_config_var("CC").split()[0]
    if not shutil.which(compiler):
        compiler = "cc"
    source, library = tmp_path / "version.c", tmp_path / "version.so"
    source.write_text(f"""
        struct {{ int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; }} version = {{{version}, 0, "", {runtime}, 0}};
        const void *dnnl_version(void) {{ return &version; }}
    """)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    assert text in run(package, LD_PRELOAD=str(library))
