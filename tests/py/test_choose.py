"""What torch runs faster goes to torch, and what dycl runs faster stays: by measurement, with results that are the same either way."""

import os
import subprocess
import sys

PROGRAM = """
import torch, dycl
from torch import nn

def tiny(x):
    return x.add(1)

class Unrepresented(nn.Module):  # every operator is left to torch, and each breaks the segment
    def forward(self, x):
        for _ in range(20):
            x = torch.cumprod(x, -1)
        return x

model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]).eval()
x = torch.rand(8, 64)
with torch.no_grad():
    wanted = [tiny(x), Unrepresented()(x), model(x)]
    calls = [dycl.accelerate(tiny), dycl.accelerate(Unrepresented()), dycl.accelerate(model)]
    for call, expected in zip(calls, wanted):
        for _ in range(400):
            torch.testing.assert_close(call(x), expected, rtol=1e-5, atol=1e-5)
slow, left, fast = [dycl.stats(call) for call in calls]
assert slow["plain_faster"] > 200, slow
assert left["plain_faster"] > 200, left
assert fast["calls"] > 300 and fast["plain_faster"] < 100, fast
assert "torch from now on" in dycl.explain(calls[0])
assert "recorded from now on" in dycl.explain(calls[2])
"""


def run(program, **environment):
    space = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", program], env=space, capture_output=True, text=True, timeout=120)


def test_each_callable_finds_its_better_way():
    done = run(PROGRAM, DYCL_CHOOSE="1")
    assert done.returncode == 0, done.stderr


def test_off_means_always_recorded():
    program = "import torch, dycl\nf = dycl.accelerate(lambda x: x + 1)\nwith torch.no_grad():\n    [f(torch.zeros(2)) for _ in range(200)]\nprint(dycl.stats(f)['calls'])"
    assert run(program, DYCL_CHOOSE="0").stdout.strip() == "200"
    assert int(run(program, DYCL_CHOOSE="1").stdout) < 200
