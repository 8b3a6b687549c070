"""Tensors without dimensions where torch wants a number: computed when torch's parser reads them, as plain tensors."""

import contextlib
import os

import pytest
import torch
import torch.nn.functional as F

import dycl
from same import same
from test_api import python

NUMBERS = {
    "zeros": lambda x, n: torch.zeros(n),
    "ones of two": lambda x, n: torch.ones((n, 2)),
    "arange": lambda x, n: torch.arange(n),
    "arange to": lambda x, n: torch.arange(1, n),
    "full": lambda x, n: torch.full((n,), 1.5),
    "full of it": lambda x, n: torch.full((2,), n),
    "view": lambda x, n: x.view(n, -1),
    "view of a list": lambda x, n: x.view([n, n]),
    "reshape": lambda x, n: torch.reshape(x, (-1, n)),
    "repeat": lambda x, n: x.repeat(n, 1),
    "expand": lambda x, n: x[:, None].expand(-1, n, -1),
    "narrow": lambda x, n: x.narrow(0, n - 2, 1),
    "new_zeros": lambda x, n: x.new_zeros(n, 3),
    "sum": lambda x, n: x.sum(n - 3),
    "sum by name": lambda x, n: x.sum(dim=n - 3, keepdim=True),
    "softmax": lambda x, n: x.softmax(n - 3),
    "cat": lambda x, n: torch.cat([x, x], n - 3),
    "stack of them": lambda x, n: torch.stack([n, n + 1]),
    "transpose": lambda x, n: x.transpose(n - 3, 0),
    "unsqueeze": lambda x, n: x.unsqueeze(n - 3),
    "topk": lambda x, n: x.topk(n - 1)[0],
    "roll": lambda x, n: x.roll(n, 0),
    "chunk": lambda x, n: x.chunk(n)[0],
    "triu": lambda x, n: x.triu(n - 3),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "one_hot": lambda x, n: F.one_hot(torch.arange(3), n),
    "sum of it": lambda x, n: torch.sum(n),
    "product": lambda x, n: torch.mul(x, n),
    "interpolate": lambda x, n: F.interpolate(x[None], size=n),
    "float for a size": lambda x, n: torch.zeros(n * 1.0),
    "batch for a size": lambda x, n: torch.zeros(x),
    "leaky slope": lambda x, n: F.leaky_relu(x, n * 0.1),
    "out": lambda x, n: torch.add(n, 1, out=n * 1),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_results_are_those_of_eager(name):
    def program(x, k):
        n = k.max() + 1
        y = NUMBERS[name](x * 2, n)
        n += 1
        return y, n, n + 1

    same(program, lambda: (torch.randn(4, 4), torch.tensor([1, 3, 2])), calls=4)


def attempt(f, *args):
    with contextlib.suppress(Exception):
        f(*args)


def test_torch_imports_nothing_for_them():
    """A tensor of ours in whose place torch's parser wants a number would make it import torch.distributed.tensor."""
    text = python(f"""
        import sys, torch
        sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
        import test_numbers
        from test_numbers import NUMBERS, attempt, dycl

        before = "torch.distributed.tensor" in sys.modules
        x, k = torch.randn(4, 4), torch.tensor([1, 3, 2])
        for name in NUMBERS:
            if name == "batch for a size":  # an error, for which torch looks at it all the same
                continue
            f = dycl.accelerate(lambda x, k: NUMBERS[name](x * 2, k.max() + 1))
            for _ in range(4):
                attempt(f, x, k)
            if "torch.distributed.tensor" in sys.modules:
                break
        print(before, "torch.distributed.tensor" in sys.modules, name)
        """)
    assert text.startswith("False False"), text


def test_a_number_that_is_recorded_waits():
    """Where a call with a tensor was recorded once, no later one computes it."""
    def program(x, k):
        n = k.max() + 1
        return torch.mul(x * 2, n), torch.stack([n, n])

    fast, x, k = dycl.accelerate(program), torch.randn(4, 4), torch.tensor([1, 3, 2])
    fast(x, k)
    before = dycl.stats(fast)["segments"]
    for _ in range(5):
        fast(x, k)
    assert dycl.stats(fast)["segments"] - before == 5
