"""torch._assert, and torch's other Python functions that ask who overrides them: their body runs as in eager, and no
segment ends that need not."""

import pytest
import torch
import torch.nn.functional as F
from same import same
from torch import nn

import dycl

LAYERS = 10


class Flag:
    """No tensor, but with a truth value that the program computes."""

    def __init__(self, value):
        self.value = value

    def __bool__(self):
        return self.value


class Overrides(Flag):
    asked = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.asked += 1
        return "overridden"


PLAIN = torch.tensor(True)
CONDITIONS = {
    "bool": lambda x: x.shape[1] == 8,
    "number": lambda x: x.dim() - 1,
    "None": lambda x: None,
    "text": lambda x: "yes",
    "tuple of tensors": lambda x: (x,),
    "object": lambda x: Flag(x.ndim == 2),
    "plain tensor": lambda x: PLAIN,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_no_value_is_needed(name):
    """A condition that is no pending tensor: the whole program is one segment."""
    condition, layers = CONDITIONS[name], [nn.Linear(8, 8) for _ in range(LAYERS)]

    def program(x):
        for layer in layers:
            x = layer(x).relu()
            if condition(x) is not None:
                torch._assert(condition(x), "wrong")
        return x

    stats = same(program, lambda: (torch.randn(4, 8),), like="matmul")
    assert stats["segments"] == stats["calls"] and stats["torch"] == 0, stats


@pytest.mark.parametrize("value", [True, False, 0, 1, "", "text", None, (), [0]], ids=repr)
def test_outcome_and_message(value):
    message = ["a", {"message": 1}]

    def program(x):
        y = x * 2
        result = torch._assert(value, message)
        return y + 1, result

    same(program, lambda: (torch.randn(4),), recorded=None)


@pytest.mark.parametrize("threshold", [-1.0, 1e9])
@pytest.mark.parametrize("form", ["lazy", "plain", "more than one", "keywords"])
def test_tensor_conditions(form, threshold):
    """The value is fetched, and the error has torch's text, type and line."""

    def program(x):
        y = x.abs() * 2
        passed = (x if form == "plain" else y).amax() > threshold
        if form == "more than one":
            passed = y > threshold
        if form == "keywords":
            torch._assert(condition=passed, message=f"{threshold}")
        else:
            torch._assert(passed, f"{threshold}")
        return y.sum()

    same(program, lambda: (torch.rand(6),), recorded=None)


def test_a_value_is_fetched_not_left_to_torch():
    def program(x):
        y = x * 2
        torch._assert((y == y).all(), "NaN")
        return y + 1

    stats = same(program, lambda: (torch.rand(6),))
    assert stats["torch"] == 0 and stats["flushes"]["fetch"] == stats["calls"]


def test_traceback_is_eagers():
    def program(x):
        y = x + 1
        torch._assert(y.shape[0] == 3, "three")

    def frames(function):
        try:
            function(torch.zeros(2))
        except AssertionError as error:
            found, at = [], error.__traceback__
            while at:
                found.append((at.tb_frame.f_code.co_name, at.tb_lineno))
                at = at.tb_next
            return found[1:]

    with torch.no_grad():
        assert frames(dycl.accelerate(program)) == frames(program)


def test_who_overrides_it_is_asked():
    def program(x):
        y = x * 2
        return torch._assert(Overrides(False), "message"), y

    same(program, lambda: (torch.randn(4),))
    Overrides.asked = 0
    with torch.no_grad():
        assert dycl.accelerate(program)(torch.ones(2))[0] == "overridden" and Overrides.asked == 1


def test_outside_of_regions_nothing_changes():
    with pytest.raises(AssertionError, match="outside"):
        torch._assert(False, "outside")
    assert torch._assert(True, "outside") is None


BODIES = {
    "tanhshrink": lambda x: F.tanhshrink(x),
    "tensordot": lambda x: torch.tensordot(x, x, dims=([0], [0])),
    "atleast_3d": lambda x: torch.atleast_3d(x),
    "pairs": lambda x: torch.cartesian_prod(x[0], x[1]),
    "kl_div": lambda x: F.kl_div(x, x.abs(), reduction="sum"),
}


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_functions(name, lazy):
    """Functions that are not bound, on plain and on lazy tensors."""
    same(lambda x: (BODIES[name](x + 1 if lazy else x), x * 3), lambda: (torch.rand(4, 4),), like="matmul")
