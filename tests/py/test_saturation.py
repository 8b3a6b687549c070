"""Where an activation has nothing left: exactly 0, 1 or -1, infinite or NaN, positive or negative.

Programs ask for that (dead units, masks, `1 / y`, `y.log()`), and no tolerance helps them: gelu(-7) is 0 in torch,
whose formula cancels, and -9e-12 by its definition. So these sets must be torch's, but for the few numbers around their
ends, where rounding decides."""

import pytest
import torch
import torch.nn.functional as F

import dycl

LINE = torch.cat([torch.arange(-120, 120, 0.005), torch.arange(-800, 800, 0.1)]).double()
NEAR = 0.75  # what is left of 1 - e^-x is half of it log 2 further on, and rounded up or down


def beside_zero(function):
    """Of two elements in a row, one of them 0."""
    return lambda t: function(torch.stack([t, torch.zeros_like(t)], -1))


FUNCTIONS = {
    "gelu": F.gelu, "gelu, strided": lambda t: F.gelu(torch.stack([t, t], 1)[:, 0]),
    "gelu_tanh": lambda t: F.gelu(t, approximate="tanh"), "silu": F.silu, "sigmoid": torch.sigmoid,
    "glu": lambda t: F.glu(torch.cat([t, t])), "tanh": torch.tanh, "erf": torch.erf, "exp": torch.exp,
    "exp2": torch.exp2, "expm1": torch.expm1, "elu": F.elu, "selu": F.selu, "celu": F.celu, "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "softsign": F.softsign, "relu6": F.relu6, "logsigmoid": F.logsigmoid,
    "softplus": F.softplus, "mish": F.mish, "softmax": beside_zero(lambda t: t.softmax(-1)),
    "log_softmax": beside_zero(lambda t: t.log_softmax(-1)), "logsumexp": beside_zero(lambda t: t.logsumexp(-1)),
    "cross_entropy": beside_zero(lambda t: F.cross_entropy(t, torch.zeros(len(t), dtype=torch.long), reduction="none")),
}  # fmt: skip
SETS = {
    "zero": lambda y: y == 0, "one": lambda y: y == 1, "minus one": lambda y: y == -1, "infinite": torch.isinf,
    "NaN": torch.isnan, "negative": lambda y: y < 0,
}  # fmt: skip
# torch's exponentials and log1p lose subnormal numbers on the way
SUBNORMAL = {"mish", "softplus", "logsigmoid"}


def near_an_end(member, x):
    """Which x lie beside an element that is a member where they are not, or the other way round."""
    order = x.argsort()
    sorted_x, sorted_member = x[order], member[order]
    ends = sorted_x[1:][sorted_member[1:] != sorted_member[:-1]]
    near = torch.zeros_like(member)
    for end in ends.tolist():
        near |= (x - end).abs() <= NEAR
    return near


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_is_left(name, dtype):
    function = FUNCTIONS[name]
    x = LINE.to(dtype).unique()
    want, got = function(x), dycl.accelerate(lambda t: function(t))(x)
    tiny = (want.abs() < torch.finfo(dtype).tiny) & (got.abs() < torch.finfo(dtype).tiny)
    for what, belongs in SETS.items():
        wrong, member = belongs(want) != belongs(got), belongs(want)
        if name in SUBNORMAL:
            wrong &= ~tiny
        if wrong.dim() > 1:
            wrong, member = wrong.T, member.T
        for w, m in zip(wrong, member, strict=True) if wrong.dim() > 1 else [(wrong, member)]:
            w = w & ~near_an_end(m, x.double()) if w.any() else w
            assert not w.any(), f"{what}: {int(w.sum())}, at {x[w][:3].tolist()}"
