"""Numbers of calls meet tensors with torch's roundings: integers beyond what a float holds, factors of both zeros."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import dycl

BIG = 2**54 + 2**30 + 1  # float32 of it, and of float64's of it, are two numbers
NUMBERS = (0, 0.0, -0.0, 1, -1, 3, -2.5, BIG, -BIG, float(BIG), -2**63, 2**63 - 1, 1e-300)

FORMS = {
    "add alpha": lambda x, y, n: torch.add(x, y, alpha=n), "sub alpha": lambda x, y, n: torch.sub(x, y, alpha=n),
    "sub_ alpha": lambda x, y, n: (x * 1).sub_(y, alpha=n),
    "tensor": lambda x, y, n: torch.tensor(n, dtype=x.dtype) + x,
    "as_tensor": lambda x, y, n: torch.as_tensor(n, dtype=x.dtype) + x,
    "pad": lambda x, y, n: F.pad(x, (1, 1), value=n),
    "plus": lambda x, y, n: x + n, "times": lambda x, y, n: y * n, "full": lambda x, y, n: torch.full_like(x, n),
    "fill_": lambda x, y, n: (x * 1).fill_(n), "masked_fill": lambda x, y, n: x.masked_fill(y > 0, n),
    "where": lambda x, y, n: torch.where(y > 0, x, n), "clamp": lambda x, y, n: (y * 1e17).clamp(max=n),
}


def outcome(program, *args):
    try:
        return program(*args)
    except Exception as error:  # noqa: BLE001
        return type(error)


@pytest.mark.parametrize("form, dtype", itertools.product(FORMS, (torch.float32, torch.float64, torch.int64)))
def test_numbers(form, dtype):
    x, y = torch.tensor([-0.0, -0.0, 0.0, 1.0]).to(dtype), torch.tensor([1.0, -1.0, 2.0, 3.0]).to(dtype)
    for number in NUMBERS:
        def program(x, y):
            return FORMS[form](x, y, number)

        want, fast = outcome(program, x, y), dycl.accelerate(program)
        for _ in range(3):
            got = outcome(fast, x, y)
            if not isinstance(want, torch.Tensor):
                assert got is want, number
                continue
            assert got.dtype == want.dtype and torch.equal(got, want), number
            if want.is_floating_point():
                assert torch.equal(got.signbit(), want.signbit()), number
