"""Operators in place whose other operands lie in what is written: torch allows some and raises for others, also where
the same operator was recorded before with operands that do not."""

import pytest
import torch

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

AT = torch.tensor([2, 0])
ROWS = torch.zeros(4, 4, dtype=torch.long)
WRITES = {
    "scatter_add_": lambda x, y: x.scatter_add_(0, ROWS, y),
    "scatter_": lambda x, y: x.scatter_(1, AT.expand(4, 2).contiguous(), y[:, :2]),
    "scatter_, all": lambda x, y: x.scatter_(0, ROWS, y),
    "scatter_reduce_": lambda x, y: x.scatter_reduce_(0, ROWS, y, "sum"),
    "index_add_": lambda x, y: x.index_add_(0, AT, y[:2]),
    "index_add_, all": lambda x, y: x.index_add_(0, torch.arange(4), y),
    "index_copy_": lambda x, y: x.index_copy_(0, AT, y[:2]),
    "index_copy_, all": lambda x, y: x.index_copy_(0, torch.arange(4), y),
    "index_put_": lambda x, y: x.index_put_((AT, AT), y[0, :2], accumulate=True),
    "index_put_, all": lambda x, y: x.index_put_((torch.arange(4),), y, accumulate=True),
    "masked_scatter_": lambda x, y: x.masked_scatter_(y > 0, y),
    "setitem": lambda x, y: x.__setitem__((AT, AT), y[0, :2]),
    "copy_ turned": lambda x, y: x.copy_(y.t()),
    "copy_": lambda x, y: x.copy_(y[0]),
    **{name: (lambda x, y, name=name: getattr(x, name)(y)) for name in ("add_", "mul_", "hypot_", "xlogy_", "atan2_")},
    **{f"{name} a row": (lambda x, y, name=name: getattr(x, name)(y[0]))
       for name in ("add_", "sub_", "mul_", "div_", "hypot_", "xlogy_", "atan2_", "fmod_", "pow_", "copysign_")},
    "add_ turned": lambda x, y: x.add_(y.t()),
    "lerp_": lambda x, y: x.lerp_(y[0].expand(4, 4), 0.5),
    "addcmul_": lambda x, y: x.addcmul_(y[0], y[1]),
    "addmm_": lambda x, y: x.addmm_(y, y),
    "masked_fill_": lambda x, y: x.masked_fill_(y[0] > 0, 1.0),
    "out": lambda x, y: torch.maximum(x, y[0], out=x),
    "product into an operand": lambda x, y: torch.mm(x, y, out=x),
}


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_written_and_read(name, learns):
    def program(x, z, same):
        y = x * 1.0
        WRITES[name](y, y if same else z * 1.0)
        return y + 1

    def outcome(function, same):
        leaves = [torch.full((4, 4), 2.0, requires_grad=learns) for _ in range(2)]
        try:
            result = function(*leaves, same)
            if learns and result.requires_grad:
                result.sum().backward()
            return [result.detach()] + [t.grad for t in leaves]
        except RuntimeError as error:
            return str(error).splitlines()[0][:90]  # then it names the tensor

    run = dycl.accelerate(program)
    for same in (False, False, False, True, True, False, True):
        got, want = outcome(run, same), outcome(program, same)
        assert got == want if isinstance(want, str) else all(map(agree, want, got)), (same, want, got)
