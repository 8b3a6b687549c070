"""Functions of torch, and parts of its modules, that a program replaces for a while or for good: what its modules call
by name is what stands there."""

import operator
import types
from unittest import mock

import dycl
import pytest
import torch
import torch.nn.functional as F
from same import same, two
from torch import nn

CALLS = []


def noted(function):
    def patched(x, *args, **kwargs):
        CALLS.append(getattr(function, "__name__", "?"))
        result = function(x, *args, **kwargs)
        return result + result

    return patched


def layers():
    model = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(32, 6), nn.ReLU(),
                          nn.LayerNorm(6), nn.GELU(), nn.SiLU(), nn.Sigmoid(), nn.Tanh(), nn.ReLU6(), nn.Hardswish(),
                          nn.Hardsigmoid(), nn.Mish(), nn.Dropout(0.5), nn.Identity())
    return model.eval(), torch.randn(3, 2, 4, 4)


@pytest.mark.parametrize("module, name", [
    *((F, name) for name in ("linear", "relu", "layer_norm", "gelu", "silu", "hardtanh", "hardswish", "hardsigmoid",
                             "mish", "batch_norm", "conv2d", "dropout")),
    *((torch, name) for name in ("sigmoid", "tanh", "relu", "layer_norm", "batch_norm"))],
    ids=lambda x: getattr(x, "__name__", x))
def test_a_function_is_replaced_within_a_call(module, name):
    def program(model, x):
        before, after, during = model(x), None, None
        with mock.patch.object(module, name, noted(getattr(module, name))):
            during = model(x)
        after = model(x)
        return before, during, after, CALLS[:]

    same(program, layers, like="matmul", between=CALLS.clear)


def test_an_embedding_function_is_replaced_between_calls():
    def program(model, x):
        CALLS.append(0)
        with mock.patch.object(F, "embedding", noted(F.embedding)) if len(CALLS) == 2 else mock.MagicMock():
            return model(x) + 1, CALLS[:]

    same(program, lambda: (nn.Embedding(7, 3), torch.tensor([1, 5])), between=CALLS.clear)


def test_a_convolution_of_its_own():
    """As programs do for textures that repeat."""
    def around(self, x, weight, bias):
        CALLS.append("around")
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), weight, bias)

    def program(model, x):
        outcomes = [model(x)]
        conv = model[0]
        conv._conv_forward = types.MethodType(around, conv)
        outcomes.append(model(x))
        del conv._conv_forward
        outcomes.append(model(x))
        with mock.patch.object(nn.Conv2d, "_conv_forward", around):
            outcomes.append(model(x))
        return outcomes, model(x), CALLS[:]

    same(program, layers, like="matmul", between=CALLS.clear)


def test_a_check_of_its_own():
    def refuse(x):
        raise ValueError(tuple(x.shape))

    def program(model, x):
        y = model(x)
        model[1]._check_input_dim = refuse
        try:
            model(x)
        except ValueError as error:
            return y, str(error)
        finally:
            del model[1]._check_input_dim

    same(program, layers, like="matmul")


def test_bounds_that_were_moved():
    def program(model, x):
        y, model.max_val = model(x), 0.5
        z, model.max_val, model.min_val = model(x), 6, -1.0
        w, model.min_val = model(x), 0.0
        return y, z, w, model(x)

    same(program, lambda: (nn.ReLU6(), torch.randn(3, 5) * 4))


def test_modules_are_recorded_at_once_again():
    model, x = layers()
    accelerated = dycl.accelerate(model)
    with torch.no_grad():
        accelerated(x)
        recorded = dycl.stats(model)["recorded"]
        with mock.patch.object(F, "linear", noted(F.linear)):
            accelerated(x)
        accelerated(x)
    assert dycl.stats(model)["recorded"] >= 2 * recorded


def asking(x, **options):
    """A program's wrapper, in the form that torch's functions have."""
    CALLS.append("entered")
    if torch.overrides.has_torch_function_unary(x) or torch.overrides.has_torch_function((x,)):
        return torch.overrides.handle_torch_function(asking, (x,), x, **options)
    return interpolate(x, **options)


interpolate = F.interpolate


def test_who_overrides():
    def program(x):
        y = x[None, None] * 2
        heard = [(torch.overrides.has_torch_function_unary(t), torch.overrides.has_torch_function([t, None]),
                  torch.overrides.has_torch_function_variadic(x, t), F.has_torch_function_unary(t)) for t in (x, y)]
        CALLS.append(heard + [F.has_torch_function_variadic(x.as_subclass(Marked), y)])
        with mock.patch.object(F, "interpolate", asking):
            larger = asking(y, scale_factor=2) + 1, F.interpolate(y, scale_factor=2), nn.Upsample(scale_factor=2)(y)
        return larger, CALLS[:]

    same(program, lambda: (torch.randn(4, 5),), between=CALLS.clear)


class Marked(torch.Tensor):
    pass


def test_who_overrides_where_another_mode_runs():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            CALLS.append(getattr(function, "__name__", "?"))
            return function(*args, **(kwargs or {}))

    def program(x):
        y = x[None, None] * 2
        with Mode():
            return torch.overrides.has_torch_function_unary(y), asking(y, scale_factor=2), CALLS[:]

    same(program, lambda: (torch.randn(4, 5),), between=CALLS.clear)


@pytest.mark.parametrize("make", [
    lambda: (nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 3, 8)),
    lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(2, 3, 8))],
    ids=["attention", "layer"])
@pytest.mark.parametrize("name", ["_native_multi_head_attention", "_transformer_encoder_layer_fwd"])
def test_an_operator_for_a_whole_module_is_replaced(make, name):
    own = getattr(torch, name)

    def shown(*args, **kwargs):
        CALLS.append([tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args])
        return own(*args, **kwargs)

    def program(model, x):
        given = (lambda x: (x, x, x)) if isinstance(model, nn.MultiheadAttention) else lambda x: (x,)
        before = model(*given(x * 2))
        with mock.patch.object(torch, name, shown):
            during = model(*given(x * 2)), model(*given(x))
        return before, during, model(*given(x * 3)), CALLS[:]

    same(program, make, like="matmul", between=CALLS.clear)


SUBJECTS = {  # what is replaced: by what, and how a program uses it
    "__mul__": (noted(torch.Tensor.__mul__), lambda y: y * 3),
    "__rmul__": (noted(torch.Tensor.__rmul__), lambda y: 3 * y),
    "__imul__": (lambda a, b: "imul", lambda y: operator.imul(y, 2)),
    "__getitem__": (lambda a, key: key, lambda y: y[1]),
    "__setitem__": (lambda a, key, value: CALLS.append((key, value)), lambda y: operator.setitem(y, 0, 7.0)),
    "__lt__": (lambda a, b: "less", lambda y: y < 0),
    "__eq__": (lambda a, b: "equal", lambda y: y == 0),
    "__matmul__": (noted(torch.Tensor.__matmul__), lambda y: y @ y.t()),
    "__len__": (lambda a: 77, len),
    "__float__": (lambda a: 1.5, lambda y: float(y.sum())),
    "__iter__": (lambda a: iter((1, 2)), list),
    "matmul": (noted(torch.Tensor.matmul), lambda y: y.matmul(y.t())),
    "sum": (noted(torch.Tensor.sum), lambda y: y.sum(0)),
    "add_": (noted(torch.Tensor.add_), lambda y: y.add_(1)),
    "item": (lambda a: 42, lambda y: y.sum().item()),
    "tolist": (lambda a: "list", lambda y: y.tolist()),
    "shape": (property(lambda a: "shape"), lambda y: y.shape),
    "T": (property(lambda a: "T"), lambda y: y.T),
    "added": (lambda a: a * 2, lambda y: y.added()),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_an_attribute_of_tensors_is_replaced(name):
    replacement, use = SUBJECTS[name]

    def program(x, y):
        a = x * 2 + y
        with mock.patch.object(torch.Tensor, name, replacement, create=name == "added"):
            during = use(a), use(x * 1), CALLS[:]
        return a, during, (a + 1 if name == "added" else use(a + 1)), CALLS[:]

    same(program, two, like="matmul", between=CALLS.clear, recorded=None)


def test_a_replaced_attribute_comes_back():
    step = dycl.accelerate(lambda x, y: x * 2 + y)
    step(*two())
    with mock.patch.object(torch.Tensor, "__mul__", noted(torch.Tensor.__mul__)):
        step(*two())
    step(*two())
    stats = dycl.stats(step)
    assert stats["plain_mode"] == 1 and stats["recorded"] == 4
    CALLS.clear()
