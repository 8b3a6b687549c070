"""The functions of float64 that are computed in vectors, against eager: zeros, infinities, NaN, subnormals, huge
arguments and powers of C's special cases, alone and among ordinary numbers."""

import math

import pytest
import torch

import dycl
from isa import ISAS, run_with

LARGEST = torch.finfo(torch.float64).max
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 2.5, -0.75, 5e-324,
           -5e-324, 2.0**-1022, LARGEST, -LARGEST, 1e300, -1e300, 1e-300, 1e22, 2.0**40, -(2.0**40) - 1, 2.0**53 - 1,
           -(2.0**53) + 1, 2.0**52 + 0.5, 1 - 2.0**-53, 1 + 2.0**-52, math.pi, math.pi / 2, -math.pi / 4, 1000.0]
FUNCTIONS = {name: getattr(torch, name) for name in ("sin", "cos", "tan", "log2", "log10")}


def same(got, want):
    """Both sides are within 2 ulp."""
    torch.testing.assert_close(got, want, rtol=4 * torch.finfo(want.dtype).eps, atol=0, equal_nan=True)
    numbers = ~want.isnan()
    assert torch.equal(got.signbit()[numbers], want.signbit()[numbers])


def check(program, *operands):
    accelerated = dycl.accelerate(program)
    with torch.no_grad():
        for _ in range(3):
            same(accelerated(*operands), program(*operands))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    ordinary = torch.linspace(-50, 50, 1000, dtype=torch.float64)
    for x in (special, torch.cat([special, ordinary]), torch.cat([ordinary, special, ordinary])[1:], ordinary):
        check(lambda x: FUNCTIONS[name](x * 1), x)


@pytest.mark.parametrize("function", [torch.pow, torch.atan2], ids=["pow", "atan2"])
def test_pairs_of_special_values(function):
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    x, y = (t.reshape(-1).contiguous() for t in torch.meshgrid(special, special, indexing="ij"))
    check(lambda x, y: function(x * 1, y), x, y)


@pytest.mark.parametrize("number", [n for n in SPECIAL if n == n])
def test_powers(number):
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    check(lambda x: (x * 1) ** number, special)
    check(lambda x: number ** (x * 1), special)


def test_a_neighbour_changes_nothing():
    """One huge argument sends a block another way."""
    x = torch.linspace(-9, 9, 700, dtype=torch.float64)
    huge = x.clone()
    huge[300] = 1e200
    others = torch.arange(700) != 300
    for function in (torch.sin, torch.cos, torch.tan):
        accelerated = dycl.accelerate(lambda x, function=function: function(x * 1))
        with torch.no_grad():
            for _ in range(3):
                assert torch.equal(accelerated(x)[others], accelerated(huge)[others])


TOO_SMALL = """
import dycl, torch, torch.nn.functional as F
x = torch.cat([torch.linspace(80, 800, 1441), torch.tensor([104.0, 745.0, 3e38, float("inf")])])
call, want = dycl.accelerate(lambda x: F.logsigmoid(x * 1)), F.logsigmoid(x)
with torch.no_grad():
    for _ in range(3):
        got = call(x)
        torch.testing.assert_close(got, want, rtol=1e-6, atol=3e-45)
        assert torch.equal(got[x > 105].signbit(), want[x > 105].signbit()), x[got.signbit() != want.signbit()]
"""


@pytest.mark.parametrize("isa", ISAS)
def test_a_log_sigmoid_too_small_for_float32(isa):
    done = run_with(isa, "-c", TOO_SMALL)
    assert done.returncode == 0, done.stderr[-2000:]
