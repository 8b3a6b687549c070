"""Modules of torch.nn whose attributes are not where torch puts them, and whose forward is not what torch wrote: what
Python would read, and run, counts."""

import contextlib

import dycl
import pytest
import torch
import torch.nn.functional as F
from torch import nn

INPUTS = {nn.Conv2d: torch.arange(16.0).view(1, 1, 4, 4), nn.BatchNorm2d: torch.arange(16.0).view(1, 1, 4, 4),
          nn.Embedding: torch.tensor([0, 1])}


def module(kind):
    options = {nn.Linear: (3, 3), nn.LayerNorm: (3,), nn.Embedding: (4, 3), nn.Conv2d: (1, 1, 2), nn.BatchNorm2d: (1,)}
    torch.manual_seed(0)
    return kind(*options.get(kind, ())).eval()


def before_between_after(kind, change):
    """The same module in one call: as it is, changed, and as it was."""
    one = module(kind)

    def program(x):
        results = [one(x)]
        with change(one):
            results.append(one(x))
        return [*results, one(x)]

    x = INPUTS.get(kind, torch.arange(6.0).view(2, 3) - 2)
    with torch.no_grad():
        want = program(x)
        ours = dycl.accelerate(program)
        for _ in range(2):
            for a, b in zip(want, ours(x), strict=True):
                torch.testing.assert_close(b, a)
    assert not torch.equal(want[0], want[1])


@contextlib.contextmanager
def in_dict(one, name):
    vars(one)[name] = getattr(one, name) * 2 + 1
    yield
    del vars(one)[name]


@contextlib.contextmanager
def in_class(one, name):
    held = one._parameters if name in one._parameters else one._buffers if name in one._buffers else vars(one)
    setattr(type(one), name, property(lambda self: held[name] * 2 + 1))
    yield
    delattr(type(one), name)


@pytest.mark.parametrize("where", [in_dict, in_class])
@pytest.mark.parametrize("kind, name", [(nn.Linear, "weight"), (nn.Linear, "bias"), (nn.LayerNorm, "weight"),
                                        (nn.Embedding, "weight"), (nn.Conv2d, "weight"), (nn.Conv2d, "bias"),
                                        (nn.BatchNorm2d, "running_mean"), (nn.BatchNorm2d, "running_var")])
def test_what_hides_a_parameter(kind, name, where):
    before_between_after(kind, lambda one: where(one, name))


def test_what_hides_an_option():
    before_between_after(nn.LayerNorm, lambda one: in_class(one, "eps"))


def shifted(self, input, weight, bias):
    return input + 100


def shifted_function(input, *args, **options):
    return input + 100


@contextlib.contextmanager
def other_body(function, code):
    own = function.__code__
    function.__code__ = code
    yield
    function.__code__ = own


@pytest.mark.parametrize("kind", [nn.Linear, nn.LayerNorm, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Identity])
def test_another_body_of_forward(kind):
    code = (lambda self, input: input + 100).__code__
    before_between_after(kind, lambda one: other_body(type(one).forward, code))


@pytest.mark.parametrize("kind, function", [(nn.ReLU, F.relu), (nn.LayerNorm, F.layer_norm), (nn.SiLU, F.silu),
                                            (nn.BatchNorm2d, F.batch_norm), (nn.Conv2d, nn.Conv2d._conv_forward)])
def test_another_body_of_what_forward_calls(kind, function):
    code = (shifted if kind is nn.Conv2d else shifted_function).__code__
    before_between_after(kind, lambda one: other_body(function, code))
