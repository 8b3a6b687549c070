"""Products of a few rows with large weights: shared by threads by columns or by rows, in whatever layout the weights
have."""

import pytest
import torch

import dycl
from suite import one_thread  # noqa: F401


@pytest.fixture(params=(1, 2, 3))
def threads(request):
    """Added to a length in each test: a plan keeps the number of threads that it was made with."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def compare(function, make_arguments, threads):
    torch.manual_seed(threads)
    target = dycl.accelerate(function)
    with torch.no_grad():
        for _ in range(4):
            arguments = make_arguments()
            for got, eager, exact in zip(*(as_tuple(f) for f in (target(*arguments), function(*arguments),
                                                                 function(*(x.double() for x in arguments))))):
                assert got.dtype == eager.dtype and got.stride() == eager.stride()
                torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=2e-4)
    assert "gemv" in dycl.explain(target)


@pytest.mark.parametrize("rows", (1, 2, 3, 4))
@pytest.mark.parametrize("columns, length", ((1024, 700), (1021, 333), (67, 5000), (5000, 67)))
@pytest.mark.parametrize("with_bias", (False, True))
def test_linear(rows, columns, length, with_bias, threads):
    columns += threads
    weight, bias = torch.randn(columns, length), torch.randn(columns) if with_bias else None
    compare(lambda x: torch.nn.functional.linear(x, weight.to(x.dtype), bias if bias is None else bias.to(x.dtype)),
            lambda: (torch.randn(rows, length),), threads)


@pytest.mark.parametrize("rows", (1, 2))
@pytest.mark.parametrize("columns, length", ((1024, 700), (1021, 333), (67, 5000), (9001, 67)))
def test_rows_of_the_weights_are_contiguous(rows, columns, length, threads):
    columns += threads
    weight, bias = torch.randn(length, columns), torch.randn(columns)
    compare(lambda x: torch.addmm(bias.to(x.dtype), x, weight.to(x.dtype)), lambda: (torch.randn(rows, length),),
            threads)


def test_operands_are_views(threads):
    weight = torch.randn(700, 1500)[::2, 100 + threads : 1400]
    other = torch.randn(1300, 800)[50 + 2 * threads : 850 : 2, 100:]
    compare(lambda x: (x @ weight.to(x.dtype), x @ other.to(x.dtype).T[:350, :]),
            lambda: (torch.randn(3, 900)[1:2, 20:370],), threads)


def test_one_column():
    """The head of a critic: a row of the transposed product, whatever the operands' layout, with a bias or without."""
    torch.manual_seed(0)
    for rows, length in ((16, 2048), (200, 30), (2, 5), (3000, 17), (1, 40), (40, 1)):
        x, wide = torch.randn(rows, length), torch.randn(length, 3)
        for layout in (lambda x: x, lambda x: x.T.contiguous().T, lambda x: x.repeat(1, 2)[:, ::2]):
            for weight in (wide[:, :1].contiguous(), wide[:, 1:2]):
                for bias in (None, torch.randn(1)):
                    def function(x, w, b):
                        return torch.nn.functional.linear(x, w.T, b), torch.bmm(x[None], w[None]), w.T @ x.T

                    run, a = dycl.accelerate(function), layout(x)
                    exact = function(*(t if t is None else t.double() for t in (a, weight, bias)))
                    for _ in range(3):
                        for got, want in zip(run(a, weight, bias), exact, strict=True):
                            torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-4)
