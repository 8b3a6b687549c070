"""The same operand in another form (strides, overlapping windows, parts of one constant, an order that a conversion
does not keep): results are eager's, whichever kernel or rewriting meets it."""

import itertools
import textwrap

import dycl
import pytest
import torch
import torch.nn.functional as F
from isa import VECTOR_ISAS, run_with
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


def read_by_many(x, weights):
    """Convolutions that ask for the same tensor in layouts of their own, pools that ask for another."""
    y = x * 2
    return torch.cat([part.flatten() for part in (
        F.conv2d(y, weights[:, :, :1, :1]), F.conv2d(y, weights[:, :1], groups=16), F.max_pool2d(y, 2),
        F.conv2d(y, weights[:, :4], groups=4), F.conv_transpose2d(y, weights, stride=2))])


def recurrent(x, state, by_input, by_state):
    return torch.lstm(x, (state, state), [by_input[:, :8], by_state[:, :8]], False, 1, 0.0, False, False, False)[0]


def both_ways(x, weight, turn):
    """What is computed is read twice in one pass over memory, as it lies and in another form."""
    y = x @ weight
    return (y + turn(y)).tanh() @ weight


SQUARE = torch.randn(300, 300, generator=torch.Generator().manual_seed(4)) * 0.06
TURNS = {"transposed": lambda y: y.t(), "the other way round": lambda y: y.flip(0), "its first row": lambda y: y[:1]}
KERNEL = torch.randn(16, 16, 3, 3, generator=torch.Generator().manual_seed(5)) * 0.1


FORMS = {
    **{f"read as it lies and {name}": (lambda x, turn=turn: both_ways(x, SQUARE, turn),
                                       lambda: (torch.randn(300, 300),)) for name, turn in TURNS.items()},
    **{f"several layouts of {size} x {size}": (lambda x: read_by_many(x, KERNEL),
                                               lambda size=size: (torch.randn(1, 16, size, size),))
       for size in (6, 14, 33)},
    "weights of a recurrent layer are parts": (recurrent, lambda: (torch.randn(5, 3, 8), torch.randn(1, 3, 8),
                                                                   torch.randn(32, 11), torch.randn(32, 13))),
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


@pytest.mark.parametrize("ones", list(itertools.product((False, True), repeat=4)), ids=str)
def test_masks_that_repeat(ones):
    """Each of an attention mask's dimensions may be 1, whatever stride it has."""
    torch.manual_seed(2)
    mask = torch.randn([1 if one else size for one, size in zip(ones, (2, 4, 5, 7))])
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    for leading in range(next((i for i, one in enumerate(ones[:2]) if not one), 2) + 1):  # may be left out, too
        for kind in mask, mask > -1:
            given = kind[(0,) * leading]
            function = dycl.accelerate(lambda *x: F.scaled_dot_product_attention(*x))
            with torch.no_grad():
                want = F.scaled_dot_product_attention(q, k, v, given)
                for _ in range(3):
                    torch.testing.assert_close(function(q, k, v, given), want, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("isa", VECTOR_ISAS)
def test_weights_of_16_bits_may_be_infinite(isa):
    done = run_with(isa, "-c", textwrap.dedent("""
        import torch, dycl
        torch.manual_seed(0)
        for dtype in torch.float16, torch.bfloat16:
            weight = torch.randn(64, 64).to(dtype)
            weight[3, 5], weight[9], weight[11, 60:] = float("inf"), -float("inf"), float("nan")
            weight[20, :2] = torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).tiny])
            linear = lambda x: torch.nn.functional.linear(x, weight)
            fast = dycl.accelerate(linear)
            with torch.no_grad():
                for rows in 1, 2, 4, 1, 1, 4:
                    x = torch.randn(rows, 64).to(dtype)
                    torch.testing.assert_close(fast(x), linear(x), rtol=2e-2, atol=2e-2, equal_nan=True)
    """), timeout=300)
    assert done.returncode == 0, done.stderr
