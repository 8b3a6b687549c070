"""torch.set_flush_denormal: what is recorded is computed as denormals are treated where it is called, also by the
thread that runs ahead."""

import os

import dycl
import pytest
import started
import torch

SMALL = 1.2e-38  # half of it is no normal number

AHEAD = """
import dycl, torch

weights = [torch.randn(256, 256) * 0.06 for _ in range(8)]


def program(x, d):
    w = d * 0.5
    for weight in weights:
        x = torch.relu(x @ weight)
        sum(range(1500))
        w = w * 1.0
    return w, x


fast, wrong, ran = dycl.accelerate(program), 0, None
with torch.no_grad():
    for i in range(120):
        torch.set_flush_denormal(i >= 60 and i % 3 > 0)
        got, want = (f(torch.zeros(64, 256), torch.full((64, 256), SMALL))[0] for f in (fast, program))
        wrong += not torch.equal(got.view(torch.int32), want.view(torch.int32))
print(wrong, dycl.stats(fast)["ahead"] > 20)
"""


@pytest.fixture(autouse=True)
def without_flushing():
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot")
    yield
    torch.set_flush_denormal(False)


def test_between_operators():
    def program(x):
        torch.set_flush_denormal(True)
        y = x * 0.5
        torch.set_flush_denormal(False)
        z = x * 0.5
        torch.set_flush_denormal(True)
        return (y != 0).any().item(), z

    call = dycl.accelerate(program)
    with torch.no_grad():
        for _ in range(12):
            (want, x), (got, y) = program(torch.full((4,), SMALL)), call(torch.full((4,), SMALL))
            assert got == want
            assert torch.equal(x.view(torch.int32), y.view(torch.int32))


def test_ahead():
    done = started.run(["-c", AHEAD.replace("SMALL", repr(SMALL))],
                       env=os.environ | {"DYCL_AHEAD": "1", "DYCL_CHOOSE": "0", "OMP_NUM_THREADS": "1"})
    assert done.stdout.split()[0] == "0", done.stdout + done.stderr
