"""Elementwise operators whose rounding or integer arithmetic is easily taken for another: to the bit, for every
dtype."""

import math

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


def _written(x, number):
    y = x * 1
    y[0] = number
    return y


# Numbers as arguments: torch raises errors where one does not fit the dtype that its kernel takes it in.
OF_NUMBERS = {
    "threshold": lambda x, n: F.threshold(x, 300, n), "threshold at": lambda x, n: F.threshold(x, n, 0.0),
    "clamp": lambda x, n: x.clamp(-1, n), "clamp from": lambda x, n: x.clamp(min=n), "mul": lambda x, n: x * n,
    "leaky_relu": lambda x, n: F.leaky_relu(x, n), "elu": lambda x, n: F.elu(x, n), "div": lambda x, n: x / n,
    "softplus": lambda x, n: F.softplus(x, 1, n), "rdiv": lambda x, n: n / x, "add": lambda x, n: x + n,
    "rsub": lambda x, n: n - x, "pow": lambda x, n: x**n, "gt": lambda x, n: x > n, "eq": lambda x, n: x == n,
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n), "full_like": torch.full_like, "remainder": lambda x, n: x % n,
    "where": lambda x, n: torch.where(x > 0, x, n), "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n), "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "hardtanh": lambda x, n: F.hardtanh(x, -1, n), "written": _written, "fill": lambda x, n: (x * 1).fill_(n),
    "add alpha": lambda x, n: torch.add(x, x, alpha=n), "sub alpha": lambda x, n: torch.sub(x, x, alpha=n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([1]), n), "clip": lambda x, n: torch.clip(x, n, 2),
    "scatter": lambda x, n: (x * 1).scatter_(0, torch.zeros(1, 5, dtype=torch.int64), n),
}  # fmt: skip
NUMBERS = (1e30, 1e39, -1e39, 70000, 65520.0, 3.4e38, 3.40282357e38, 10**6, 300, -1, 2**40, 2**70, math.inf, 1.0, True)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int8,
                                   torch.uint8), ids=str)
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_numbers_that_may_not_fit(name, dtype):
    def outcome(function):
        try:
            return function(x, number)
        except Exception as error:  # noqa: BLE001
            return type(error), str(error)

    x = (torch.randn(3, 5, generator=torch.Generator().manual_seed(1)) * 4).to(dtype)
    for number in NUMBERS:
        accelerated = dycl.accelerate(OF_NUMBERS[name])
        with torch.no_grad():
            want = outcome(OF_NUMBERS[name])
            for _ in range(3):
                got = outcome(accelerated)
                if isinstance(want, torch.Tensor):  # values have their own tests: whether one is finite counts here
                    torch.testing.assert_close(got, want, rtol=2e-2, atol=1e-3, equal_nan=True)
                else:
                    assert got == want, number


PARAMETERS = (-1.5, -1.0, -0.0, 0.0, 0.25, 1.0, 3.0, 1e-30)
BENT = {
    "elu": [(a,) for a in PARAMETERS],
    "celu": [(a,) for a in PARAMETERS if a],
    "leaky_relu": [(a,) for a in PARAMETERS],
    "threshold": [(a, b) for a in PARAMETERS for b in (-2.0, -0.0, 7.0)],
    "softplus": [(a, b) for a in PARAMETERS if a for b in (-1.0, 0.0, 20.0)],
    "hardtanh": [(a, b) for a in PARAMETERS for b in PARAMETERS if a < b],
    "hardshrink": [(a,) for a in PARAMETERS],
    "softshrink": [(a,) for a in PARAMETERS if a >= 0],
    **{name: [()] for name in ("selu", "relu", "relu6", "hardswish", "hardsigmoid", "logsigmoid", "softsign",
                               "tanhshrink", "silu", "mish")},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", BENT)
def test_activations_at_their_bends(name, dtype):
    """With parameters that nobody trains with too: which side a bend belongs to decides about the sign of a zero, and
    about infinities and NaN. 150 elements: whole vectors and what is left."""
    function = getattr(F, name)
    bound = torch.finfo(dtype).eps * (4 if dtype.itemsize == 2 else 128)  # digits are not what this is about
    for parameters in BENT[name]:
        bends = torch.tensor([0.0, -0.0, *parameters, *(-p for p in parameters), 3.0, 6.0], dtype=dtype)
        x = torch.cat([bends, bends.nextafter(torch.tensor(1e3, dtype=dtype)),
                       bends.nextafter(torch.tensor(-1e3, dtype=dtype)),
                       torch.tensor([math.nan, math.inf, -math.inf], dtype=dtype)])
        x = x.repeat(150 // x.numel() + 1)[:150]
        expected = function(x, *parameters)
        for program in (lambda x: function(x, *parameters), lambda x: function(x * 1, *parameters)):
            accelerated = dycl.accelerate(program)
            with torch.no_grad():
                for _ in range(3):
                    got = accelerated(x)
                    close = torch.isclose(got, expected, rtol=bound, atol=0, equal_nan=True)
                    same = close & ((got != 0) | (got.signbit() == expected.signbit()))
                    assert bool(same.all()), (parameters, x[~same], got[~same], expected[~same])
