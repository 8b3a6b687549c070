"""The peak of a training step's memory is about eager's, for models whose activations are large beside everything else.
Each runs in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest

from test_environment import start

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

    base = kilobytes("RssAnon")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is that of now
    for _ in range(4):
        step()
    print(kilobytes("VmHWM") - kilobytes("RssFile") - base)  # pages of libraries stay, once they were read
"""

# How much of eager's peak may be taken, as what was saved lives until the whole backward pass is done, and MiB above it
MODELS = {
    # 4 MiB each; eager keeps two for each layer
    "layers": (1.1, 0, """
    model = nn.Sequential(*[m for _ in range(32) for m in (nn.Linear(64, 64), nn.GELU())])
    x = torch.randn(16384, 64)
    """),
    # 32 MiB each; eager keeps two, and positions of 16
    "pooling": (1.35, 0, """
    model = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.MaxPool2d(2))
    x = torch.randn(8, 16, 1024, 64)
    """),
    # 1 MiB of gradients, and plans. oneDNN's sgemm brought 3.4 of code, and a huge page 2
    "small": (1.0, 2, """
    model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(256, 256), nn.GELU())])
    x = torch.randn(64, 256)
    """),
}


def _peak(name, form):
    script = textwrap.dedent(PEAK).format(model=textwrap.dedent(MODELS[name][2]).strip())
    whole = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # freed tensors leave no gaps: a tenth, up or down
    done = subprocess.run([sys.executable, "-", form], input=script, capture_output=True, text=True, timeout=300,
                          env=whole)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", MODELS)
def test_peak_is_eagers(name):
    eager, ours = _peak(name, "eager"), _peak(name, "dycl")
    part, above, _ = MODELS[name]
    assert ours <= eager * part + above, f"{ours:.1f} MiB, eager {eager:.1f}"


@pytest.mark.parametrize("elements,tiles", [(100, 4), (3_000_000, 1)])
def test_what_is_large_is_fused_at_first_sight(elements, tiles):
    """Else the first step takes the most memory: a tensor for each operator."""
    said = start(f"""if True:
        import torch, dycl
        with torch.no_grad():
            dycl.accelerate(lambda x: ((x + 1).exp() * 2 - x))(torch.zeros({elements}))
        """, DYCL_CHOOSE="0", DYCL_LOG="plan").stderr
    assert f"cold plan: {tiles} steps" in said, said


@pytest.mark.skipif(os.confstr("CS_GNU_LIBC_VERSION") is None, reason="of glibc's malloc")
def test_steps_do_not_give_their_memory_back():
    """8 MiB of gradients, and what 12 layers save: each step would take some thousand pages of the system again."""
    faults = start("""if True:
        import resource
        import torch, dycl
        from torch import nn
        torch.set_num_threads(1)
        model = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(400, 400), nn.Tanh())])
        dycl.accelerate(model)
        x, counts = torch.randn(512, 400), []
        for _ in range(24):
            counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
            model.zero_grad()
            model(x).square().mean().backward()
        print((counts[23] - counts[11]) / 12)
        """, DYCL_PROFILE="0").stdout
    assert float(faults) < 200, faults
