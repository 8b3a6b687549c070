"""The same operand in another form (strides, overlapping windows, parts of one constant, an order that a conversion does
not keep): results are eager's, whichever kernel or rewriting meets it."""

import dycl
import pytest
import torch
import torch.nn.functional as F
from torch import nn

CONSTANT = nn.Parameter(torch.randn(96, 64, generator=torch.Generator().manual_seed(3)), requires_grad=False)
NAN = torch.tensor([float("nan"), 1.0, 2.0, -1.0])


class Parts(nn.Module):
    """Two products whose weights are parts of one constant."""

    def __init__(self):
        super().__init__()
        self.weight = CONSTANT

    def forward(self, x):
        return F.linear(x, self.weight[:48]) - F.linear(x, self.weight[48:])


class Behind(nn.Module):
    """A sum behind the activation of a convolution."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        y = x * 2
        return F.relu(self.conv(x)) + y


def normalised(x, vectors):
    mean, variance, weight, bias = vectors.unbind(1)
    return F.batch_norm(x, mean, variance.abs() + 1, weight, bias)


def laid(x):
    y = x.permute(1, 0, 2)
    return ((y.contiguous().neg() * 2).softmax(1) + (y.neg() * 3).softmax(1)).sum(2)


FORMS = {
    "batch norm's vectors lie side by side": (normalised, lambda: (torch.randn(2, 5, 3, 3), torch.randn(5, 4))),
    "windows of one row each": (lambda x, w: (x * 1).unfold(0, 8, 1)[:, None] @ w,
                                lambda: (torch.randn(40), torch.randn(8, 24))),
    "a conversion that makes equal": (lambda x: (x * 1).long().argmax(-1),
                                      lambda: ((torch.rand(6, 50) * 3).bfloat16(),)),
    "no comparison is not its opposite": (lambda x, y: torch.where(torch.logical_not(x < y), x, y * 2) + 1,
                                          lambda: (NAN.repeat(8), torch.ones(32))),
    "equal values in two orders": (laid, lambda: (torch.randn(3, 4, 16),)),
    "parts of one constant": (Parts(), lambda: (torch.randn(16, 64),)),
    "a sum behind an activation": (Behind(), lambda: (torch.randn(1, 16, 9, 9),)),
}


@pytest.mark.parametrize("name", FORMS)
def test_form(name):
    function, make = FORMS[name]
    torch.manual_seed(1)
    rounds = [make() for _ in range(5)]
    with torch.no_grad():
        want = [function(*arguments) for arguments in rounds]
        fast = dycl.accelerate(function)
        for arguments, expected in zip(rounds, want):
            got = fast(*arguments)
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
