"""Elementwise operators whose rounding or integer arithmetic is easily taken for another: to the bit, for every
dtype."""

import pytest
import torch
import torch.nn.functional as F

import dycl

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def check(program, x):
    expected, accelerated = program(x), dycl.accelerate(program)
    with torch.no_grad():
        for _ in range(3):
            got = accelerated(x)
            assert got.dtype == expected.dtype and got.stride() == expected.stride()
            same = (got == expected) | (got.isnan() & expected.isnan())
            assert bool(same.all()), (program, x[~same], got[~same], expected[~same])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [3, 1, 1.0, True, 0.7, -2, 0, 2.5e38, 1e-3])
def test_a_number_divided_by_a_tensor(number, dtype):
    """torch multiplies the number by the reciprocal, which rounds twice."""
    x = torch.arange(-60, 60).to(dtype)
    for program in (lambda x: number / x, lambda x: number / (x + x), lambda x: (x + x) / number if number else x):
        check(program, x)
    if dtype.is_floating_point:
        check(lambda x: number / x, torch.tensor([1e-40, -3e-39, 1e-45, 3e38, float("inf"), 0.0, -0.0], dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_softsign_of_integers(dtype):
    """It is made of operators that compute in the integers' own dtype: 1 + |x| wraps around."""
    x = torch.arange(-130, 130).to(dtype)
    if not dtype.is_floating_point and dtype != torch.bool:
        x = torch.cat([x, torch.tensor([torch.iinfo(dtype).max, torch.iinfo(dtype).min, torch.iinfo(dtype).max - 1],
                                       dtype=dtype)])
    if dtype != torch.bool:  # no abs
        check(F.softsign, x)
        check(lambda x: F.softsign(x + 0), x)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool])
@pytest.mark.parametrize("alpha", [0.3, -1.7, 2, 3, 1e30])
def test_a_scaled_sum_rounds_once(dtype, alpha):
    """torch's kernels multiply and add in one instruction: what the product alone would round or make infinite stays.

    Only where the second operand is one element repeated, the compiler multiplies ahead of the loop over what is no
    whole vector."""
    if isinstance(alpha, float) and not dtype.is_floating_point:
        return
    x = torch.arange(-60, 60).to(dtype)
    others = [x.flip(0), x.neg().roll(1)]
    if dtype.is_floating_point:
        largest = torch.finfo(dtype).max
        x = torch.cat([torch.randn(120, dtype=dtype), torch.tensor([largest, -largest, float("inf")], dtype=dtype)])
        others = [x.flip(0), x.neg().roll(1), torch.randn(123, dtype=torch.float64), torch.arange(123)]
    for y in others:
        for program in (
            lambda x: torch.add(x, y, alpha=alpha),
            lambda x: torch.sub(x, y, alpha=alpha),
            lambda x: x.clone().add_(y, alpha=alpha),
            lambda x: x.clone().sub_(y, alpha=alpha),
            lambda x: torch.add(x.reshape(3, -1), y.reshape(-1, 3).t(), alpha=alpha),
            lambda x: torch.sub(x.reshape(-1, 3).t(), y.reshape(3, -1), alpha=alpha),
        ):
            check(program, x)
