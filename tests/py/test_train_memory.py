"""The peak of a training step's memory is about eager's, for models whose activations are large beside everything else.
Each runs in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest

PEAK = """
    import sys

    import torch
    from torch import nn

    import dycl

    torch.set_num_threads(1)
    torch.manual_seed(0)
    {model}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if sys.argv[1] == "dycl":
        dycl.accelerate(model), dycl.accelerate(optimizer)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def kilobytes(name):
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

    base = kilobytes("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is that of now
    for _ in range(6):
        step()
    print(kilobytes("VmHWM") - base)
"""

MODELS = {
    # 4 MiB each; eager keeps two for each layer
    "layers": """
    model = nn.Sequential(*[m for _ in range(32) for m in (nn.Linear(64, 64), nn.GELU())])
    x = torch.randn(16384, 64)
    """,
}


def _peak(name, form):
    script = textwrap.dedent(PEAK).format(model=textwrap.dedent(MODELS[name]).strip())
    whole = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # freed tensors leave no gaps: a tenth, up or down
    done = subprocess.run([sys.executable, "-", form], input=script, capture_output=True, text=True, timeout=300,
                          env=whole)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", MODELS)
def test_peak_is_eagers(name):
    eager, ours = _peak(name, "eager"), _peak(name, "dycl")
    assert ours <= eager * 1.1, f"{ours:.0f} MiB, eager {eager:.0f}"
