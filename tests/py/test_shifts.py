"""Shifts of integers by any count: more bits than there are and negative counts move everything out."""

import operator

import dycl
import pytest
import torch

DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FORMS = {
    "<<": operator.lshift, ">>": operator.rshift, "left": torch.bitwise_left_shift, "right": torch.bitwise_right_shift,
    "method": lambda x, n: x.bitwise_left_shift(n), "in place": lambda x, n: x.clone().__ilshift__(n) + 1,
    "in place right": lambda x, n: x.clone().bitwise_right_shift_(n),
}  # fmt: skip


def agree(function, *operands):
    fast = dycl.accelerate(function)
    for _ in range(2):
        try:
            wanted = function(*operands)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                fast(*operands)
            assert str(raised.value) == str(error)
            continue
        got = fast(*operands)
        assert got.dtype == wanted.dtype and torch.equal(got, wanted), operands
    return dycl.stats(fast)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_shifts(dtype, form):
    info = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 2, 3, 5, 100, info.max, info.min, info.max // 3])
    x = x.to(dtype).repeat(5)
    counts = torch.tensor([0, 1, 7, 8, 15, 31, 33, 63, 64, 70, -1, -64]).clamp(info.min, info.max).to(dtype)
    for other in DTYPES:
        agree(FORMS[form], x[:, None].expand(-1, len(counts)), counts.to(other))
    for count in (0, 1, 3, 8, 31, 64, -1, True):
        agree(FORMS[form], x, count)
    stats = agree(lambda x: FORMS[form](x & 3, 2) | 1, x)
    assert not stats["torch"]


@pytest.mark.parametrize("form", ("<<", ">>", "left"))
def test_what_torch_says_of_others(form):
    for x, n in ((torch.ones(3), 2), (torch.ones(3, dtype=torch.bool), 1), (torch.arange(3), 1.5),
                 (torch.arange(3), torch.ones(3)), (torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool))):
        try:
            FORMS[form](x, n)
        except (RuntimeError, NotImplementedError):
            pass
        agree(FORMS[form], x, n)


def test_a_number_on_the_left():
    agree(lambda x: 1 << x, torch.arange(8))
    agree(lambda x: 1000 >> x, torch.arange(8, dtype=torch.int32))
