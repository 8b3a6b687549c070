"""torch's pow keeps its operand for the backward pass, for every exponent: writes to the result are free, those to the
operand are errors, and what writes uncounted changes what eager changes. Exponents that other operators compute."""

import dycl
import pytest
import torch


def write_result(x, y):
    return y.mul_(3)


def write_part(x, y):
    y[0] = 0
    return y


def write_result_uncounted(x, y):
    y.detach().numpy()[:] = 0
    return y


def write_operand(x, y):
    x.detach().zero_()
    return y


WRITES = [write_result, write_part, write_result_uncounted, write_operand]


def gradient(function, exponent, write):
    leaf = torch.tensor([1.0, 2.0, 4.0, 1e-3], requires_grad=True)
    try:
        function(leaf, exponent, write).sum().backward()
    except RuntimeError as error:
        return str(error)
    return leaf.grad


@pytest.mark.parametrize("exponent", [0.5, -0.5, -1, -1.0, -2, 2, 1.5])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("way", ["**", "pow", "pow_"])
def test_writes_between_the_passes(way, write, exponent):
    def program(leaf, exponent, write):
        x = leaf * 1
        y = x**exponent if way == "**" else x.pow(exponent) if way == "pow" else x.clone().pow_(exponent)
        return write(x, y)

    want, fast = gradient(program, exponent, write), dycl.accelerate(program)
    for _ in range(2):
        got = gradient(fast, exponent, write)
        if isinstance(want, str):
            assert got == want
        else:
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_values_at_the_edges():
    x = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e10, 1e-10, 1e-30])
    for exponent in (0.5, -0.5, -1, -2):
        def program(leaf):
            return leaf**exponent

        grads = []
        for run in (program, dycl.accelerate(program)):
            leaf = x.clone().requires_grad_()
            run(leaf).sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-5, atol=0, equal_nan=True)
