"""What a program puts on torch's classes of modules, into torch's own modules and into optimizers after they were
used: calls go where they would go in eager, and come back when it is gone."""

import collections
import contextlib
import sys
import types

import dycl
import pytest
import torch
import torch.nn.functional as F
from same import same
from torch import nn

SEEN = []


class Network(nn.Module):
    """Stock layers within a module. None changes the sizes: what is put in its place need not, either."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        self.second = nn.Sequential(nn.Dropout2d(), nn.Flatten(), nn.Linear(48, 48), nn.LayerNorm(48), nn.GELU(),
                                    nn.ReLU6(), nn.Dropout())

    def forward(self, x):
        return self.second(self.first(x))


def network():
    return Network().eval(), torch.randn(2, 3, 4, 4)


CLASSES = [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Dropout2d, nn.Linear, nn.LayerNorm, nn.GELU, nn.ReLU6, nn.Dropout]
_MISSING = object()


@contextlib.contextmanager
def put(place, name, value):
    """As mock.patch.object, but nothing is left behind where there was nothing."""
    before = vars(place).get(name, _MISSING)
    setattr(place, name, value)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(place, name)
        else:
            setattr(place, name, before)


@contextlib.contextmanager
def body(function, other):
    """The function has the other's body for a while."""
    before = function.__code__
    function.__code__ = other.__code__
    try:
        yield
    finally:
        function.__code__ = before


def outside(patch, make=network, calls=3):
    """The patch is there before the accelerated call begins: what eager gives, and what is given."""
    model, x = make()
    accelerated = dycl.accelerate(model)
    with torch.no_grad():
        for patched in (False, True, False, True):
            with patch() if patched else contextlib.nullcontext():
                for _ in range(calls):
                    SEEN.clear()
                    with dycl.disable():
                        wanted, seen = accelerated(x), SEEN[:]
                    SEEN.clear()
                    got = accelerated(x)
                    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
                    assert SEEN == seen


def spy_of(cls, name):
    original = getattr(cls, name)

    def spy(self, *args, **kwargs):
        SEEN.append((cls.__name__, name))
        result = original(self, *args, **kwargs)
        return result + 1 if isinstance(result, torch.Tensor) and name != "__getattr__" else result

    return spy


PROPERTIES = {
    nn.Conv2d: ["padding_mode", "stride", "weight"],
    nn.BatchNorm2d: ["training", "eps", "running_mean", "track_running_stats", "momentum"],
    nn.ReLU: ["inplace"],
    nn.Dropout2d: ["training", "p"],
    nn.Linear: ["weight", "bias"],
    nn.LayerNorm: ["eps", "normalized_shape"],
    nn.GELU: ["approximate"],
    nn.ReLU6: ["min_val", "max_val"],
    nn.Dropout: ["p", "training"],
}
CHANGED = {"padding_mode": "circular", "stride": (1, 1), "training": False, "eps": 0.5, "inplace": False, "p": 0.25,
           "approximate": "tanh", "min_val": -1.0, "max_val": 0.5, "normalized_shape": (48,), "momentum": 0.5,
           "track_running_stats": True}


@pytest.mark.parametrize("cls, name", [(cls, name) for cls, names in PROPERTIES.items() for name in names],
                         ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_a_property_of_one_class(cls, name):
    def get(self):
        SEEN.append(name)
        held = self.__dict__["_parameters"].get(name, self.__dict__["_buffers"].get(name))
        return CHANGED[name] if held is None else held * 2

    outside(lambda: put(cls, name, property(get)))


@pytest.mark.parametrize("name", ["__call__", "__getattr__", "__getattribute__", "_call_impl", "forward"])
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_method_of_one_class(cls, name):
    outside(lambda: put(cls, name, spy_of(cls, name)))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_what_compiles_calls_of_a_class(cls):
    def compiled(*args):
        SEEN.append(cls.__name__)
        return args[-1] * 3

    outside(lambda: put(cls, "_compiled_call_impl", staticmethod(compiled)))


@pytest.mark.parametrize("name", ["linear", "conv", "batchnorm", "activation", "normalization", "dropout"])
def test_another_module_of_functions(name):
    place = getattr(nn.modules, name)
    functions = types.SimpleNamespace(**vars(F))
    for function in ("linear", "conv2d", "batch_norm", "relu", "gelu", "hardtanh", "layer_norm", "dropout",
                     "dropout2d"):
        setattr(functions, function, lambda *args, f=getattr(F, function), **named: f(*args, **named) + 1)
    outside(lambda: put(place, "F", functions))


def test_another_dict_of_global_hooks():
    def doubled(module, args, result):
        SEEN.append(type(module).__name__)
        return result * 2

    hooks = collections.OrderedDict({0: doubled})
    outside(lambda: put(nn.modules.module, "_global_forward_hooks", hooks))


@pytest.mark.parametrize("name", ["_call_impl", "_wrapped_call_impl", "__getattr__"])
def test_the_body_of_a_method_of_every_module(name):
    function = getattr(nn.Module, name)
    original = types.FunctionType(function.__code__, function.__globals__, name, function.__defaults__)

    def _call_impl(self, *args, **kwargs):
        import sys  # it runs in torch's module

        here = sys.modules["test_patched_classes"]
        here.SEEN.append(type(self).__name__)
        return here.ORIGINAL(self, *args, **kwargs)

    global ORIGINAL
    ORIGINAL = original
    outside(lambda: body(function, _call_impl))


@pytest.mark.parametrize("cls, size", [(nn.Dropout2d, (3, 4)), (nn.Dropout2d, (2, 3, 4)), (nn.Dropout2d, (2, 3, 4, 4)),
                                       (nn.Dropout2d, (2, 3, 4, 4, 4)), (nn.Dropout, (3,))])
def test_dropout_that_only_looks(cls, size):
    """In evaluation: its words about ranks, and about a probability that is none."""
    def program(model, x):
        return model(x), model(x * 2)

    same(program, lambda: (cls().eval(), torch.randn(size)))


@pytest.mark.parametrize("cls, name, value", [
    (nn.Dropout, "p", 1.5), (nn.Dropout, "p", -0.5), (nn.Dropout2d, "p", 2), (nn.Dropout, "p", None),
    (nn.BatchNorm2d, "momentum", "a"), (nn.BatchNorm2d, "momentum", None), (nn.BatchNorm2d, "momentum", 1),
    *((cls, "inplace", _MISSING) for cls in (nn.ReLU, nn.SiLU, nn.ReLU6, nn.Hardswish, nn.Hardsigmoid, nn.Mish)),
    (nn.BatchNorm2d, "momentum", _MISSING)],
    ids=lambda x: getattr(x, "__name__", None) or ("missing" if x is _MISSING else str(x)))
def test_attributes_that_do_not_fit(cls, name, value):
    def make():
        model = (cls(3) if cls is nn.BatchNorm2d else cls()).eval()
        setattr(model, name, value)
        if value is _MISSING:
            delattr(model, name)
        return model, torch.randn(2, 3, 4, 4)

    same(lambda model, x: model(x * 2) + 1, make)


def step_of(optimizer, parameters):
    for parameter in parameters:
        parameter.grad = torch.linspace(-1, 1, parameter.numel()).view_as(parameter)
    optimizer.step()


def trained(make, patch, accelerate):
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(size)) for size in ((3, 4), (5,))]
    optimizer = make(parameters)
    if accelerate:
        dycl.accelerate(optimizer)
    SEEN.clear()
    for patched in (False, False, True, True, False):
        with patch() if patched else contextlib.nullcontext():
            step_of(optimizer, parameters)
    return [p.detach().clone() for p in parameters], SEEN[:]


OPTIMIZERS = ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax"]


def module_of(name):
    """Where the optimizer's functions are."""
    return sys.modules[f"torch.optim.{'adam' if name == 'AdamW' else name.lower()}"]


def same_steps(make, patch):
    wanted, seen = trained(make, patch, False)
    got, heard = trained(make, patch, True)
    assert heard == seen and seen
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_function_on_lists_is_replaced(name):
    original = torch._foreach_add_

    def noted(*args, **kwargs):
        SEEN.append("_foreach_add_")
        return original(*args, **kwargs)

    same_steps(lambda parameters: getattr(torch.optim, name)(parameters, foreach=True),
               lambda: put(torch, "_foreach_add_", noted))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_helper_of_optimizers_is_replaced(name):
    place = module_of(name)
    original = place._default_to_fused_or_foreach

    def noted(*args, **kwargs):
        SEEN.append("choice")
        return original(*args, **kwargs)

    same_steps(lambda parameters: getattr(torch.optim, name)(parameters),
               lambda: put(place, "_default_to_fused_or_foreach", noted))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_body_of_an_optimizers_function_is_replaced(name):
    module = module_of(name)
    function = getattr(module, f"_single_tensor_{module.__name__.rpartition('.')[2]}")

    def other(params, *args, **kwargs):
        import sys  # it runs in torch's module

        sys.modules["test_patched_classes"].SEEN.append("body")
        for p in params:
            p.add_(1)

    same_steps(lambda parameters: getattr(torch.optim, name)(parameters), lambda: body(function, other))
