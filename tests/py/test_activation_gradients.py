"""Gradients that are one operator each: what they are at bends and bounds, of infinities and NaN, by gradients that
are infinite or NaN themselves. Those without an exponential are torch's to the bit."""

import pytest
import torch
import torch.nn.functional as F

import dycl

INFINITY = float("inf")
EXACT = {
    "relu6": F.relu6, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "hardtanh": F.hardtanh,
    "hardtanh, bounds": lambda x: F.hardtanh(x, -0.25, 0.75), "leaky_relu": F.leaky_relu,
    "leaky_relu of 0": lambda x: F.leaky_relu(x, 0.0), "leaky_relu, negative": lambda x: F.leaky_relu(x, -0.5),
    "hardshrink": F.hardshrink, "hardshrink of 0": lambda x: F.hardshrink(x, 0.0),
    "threshold": lambda x: F.threshold(x, 0.125, 3.0),
}  # fmt: skip
ROUNDED = {
    "logsigmoid": F.logsigmoid, "softplus": F.softplus, "softplus, beta": lambda x: F.softplus(x, 2.0, 3.0),
    "elu": F.elu, "elu, alpha": lambda x: F.elu(x, 0.375), "celu": F.celu, "celu, alpha": lambda x: F.celu(x, 0.5),
    "selu": F.selu,
}  # fmt: skip
IN_PLACE = {"relu6": F.relu6, "hardtanh": F.hardtanh, "leaky_relu": F.leaky_relu, "elu": F.elu, "celu": F.celu,
            "selu": F.selu, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid}


def edges(dtype):
    """Operands at, beside and beyond bends, each with several gradients; torch's vectors are filled."""
    x = torch.tensor([0.0, -0.0, 1, -1, 3, -3, 6, -6, 0.5, -0.5, 0.125, -0.25, 0.75, 20, 1.5, 88.7, -88, -104, INFINITY,
                      -INFINITY, float("nan"), 1e-40, -1e-40, 1e30, -1e30, -20], dtype=dtype)
    x = torch.cat([x, *(torch.nextafter(x, torch.tensor(to, dtype=dtype)) for to in (INFINITY, -INFINITY)),
                   torch.randn(50, dtype=dtype) * 4])
    g = torch.tensor([1.0, -1, 0, -0.0, 0.3, INFINITY, float("nan"), 1e30], dtype=dtype)
    x, g = (t.flatten() for t in torch.meshgrid(x, g, indexing="ij"))
    assert len(x) % 16 == 0
    return x, g


def gradient(program, x, g):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(program(x), x, g)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_edges(name, dtype):
    torch.manual_seed(0)
    program, (x, g) = (EXACT | ROUNDED)[name], edges(dtype)
    accelerated = dycl.accelerate(lambda x: program(x))
    want = gradient(program, x, g)
    for _ in range(2):
        got = gradient(accelerated, x, g)
        if name in EXACT:
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(got.signbit() | (got.isnan()), want.signbit() | want.isnan())
        else:
            torch.testing.assert_close(got, want, rtol=8 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).tiny * 2,
                                       equal_nan=True)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    program = IN_PLACE[name]
    x, g = torch.randn(48), torch.randn(48)

    def written(x):
        y = x * 1.5
        program(y, inplace=True)
        return y + 1

    accelerated = dycl.accelerate(lambda x: written(x))
    for _ in range(2):
        torch.testing.assert_close(gradient(accelerated, x, g), gradient(written, x, g))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", [F.softmax, F.log_softmax, F.softmin])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 1), (5, 3), (4, 16), (3, 70), (2, 3, 33), (2, 5000), (0, 4)],
                         ids=str)
def test_rows(function, shape, dtype):
    """Beside operators that are computed in the same pass; rows of infinities and NaN; gradients of gradients. Sums of
    thousands in float32 are judged by float64's: torch's kernel for AVX2 is up to 2e-5 from them."""
    torch.manual_seed(0)
    x, g = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    if len(shape) > 1 and shape[0] > 2:
        x[0, 0], x[1] = float("nan"), -INFINITY
        x[2, 0], g[2, -1] = -INFINITY, INFINITY

    def program(x):
        return function(x * 2, -1) * 3

    accelerated = dycl.accelerate(lambda x: program(x))
    rounding = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-13}
    judge = torch.float64 if shape == (2, 5000) else dtype
    for _ in range(2):
        torch.testing.assert_close(gradient(accelerated, x, g).to(judge), gradient(program, x.to(judge), g.to(judge)),
                                   equal_nan=True, **rounding)
    x.nan_to_num_(0, 0, 0), g.nan_to_num_(0, 0, 0)
    twice = []
    for run in (program, accelerated):
        leaf, weight = x.clone().requires_grad_(), g.clone().requires_grad_()
        once, = torch.autograd.grad(run(leaf), leaf, weight, create_graph=True)
        twice.append(torch.autograd.grad((once * once).sum(), [leaf, weight]))
    for want, got in zip(*twice):  # sums of thousands, which cancel
        size = want.abs().max().item() if want.numel() else 0
        torch.testing.assert_close(got, want, rtol=0, atol=rounding["atol"] * (10 + 10 * size))


def test_one_operator_each():
    """None is composed any more: the plan of a backward pass names it."""
    rows = {"softmax_back": lambda x: F.softmax(x, -1), "log_softmax_back": lambda x: F.log_softmax(x, -1)}
    elements = {"hardswish_grad": F.hardswish, "leaky_relu_grad": F.leaky_relu, "elu_grad": F.elu}
    for name, program in (rows | elements).items():
        accelerated = dycl.accelerate(lambda x: program(x) * 2)
        for _ in range(3):
            gradient(accelerated, torch.randn(64, 256), torch.randn(64, 256))
        assert name in str(dycl.debug.graph(accelerated)), name
