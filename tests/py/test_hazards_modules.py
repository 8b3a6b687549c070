"""A model that changes between calls: parameters, buffers, training and evaluation, hooks, modules, forward; packed
weights must follow."""

import copy
import gc
import pickle

import dycl
import started
import pytest
import torch
from same import compare
from tolerance import bounds
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)
        self.register_buffer("shift", torch.randn(16))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        h = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.head((self.linear(h) + self.shift).tanh()) * self.scale


def inputs():
    return torch.randn(2, 3, 8, 8)


CHANGES = []


def change(function):
    CHANGES.append(pytest.param(function, id=function.__name__))
    return function


@change
def in_place(model):
    model.linear.weight.mul_(1.5)
    model.head.bias.add_(1)


@change
def one_element(model):
    model.linear.weight[0, 0] = 3.0
    model.conv.weight[0, 0, 0, 0] += 1


@change
def through_data(model):
    model.linear.weight.data.mul_(2)
    model.conv.weight.data[0] = 0.5


@change
def through_a_data_alias_that_is_kept(model):
    if not hasattr(model, "alias"):
        object.__setattr__(model, "alias", [model.linear.weight.data, model.conv.weight.data])
    for alias in model.alias:
        alias.add_(0.25)


@change
def data_replaced(model):
    model.linear.weight.data = model.linear.weight.data * 3
    model.conv.bias.data = torch.ones(8)


@change
def through_numpy(model):
    model.linear.weight.detach().numpy()[0] += 2
    model.conv.weight.detach().numpy()[:] *= 0.5


@change
def through_a_numpy_array_that_is_kept(model):
    if not hasattr(model, "array"):
        object.__setattr__(model, "array", [model.linear.weight.detach().numpy(), model.head.weight.detach().numpy()])
    for array in model.array:
        array[0] += 1


@change
def through_dlpack(model):
    import numpy as np

    array = np.from_dlpack(model.linear.weight.detach())
    torch.from_dlpack(array).add_(1)


@change
def through_the_storage(model):
    model.linear.weight.untyped_storage().fill_(0)


@change
def through_a_view(model):
    model.linear.weight.view(-1)[3:9].zero_()
    model.head.weight.t()[0].fill_(2)


@change
def through_detach(model):
    model.linear.weight.detach().add_(1)


@change
def in_inference_mode(model):
    with torch.inference_mode():
        model.linear.weight.add_(1)


@change
def by_set(model):
    model.linear.weight.set_(torch.ones(16, 8))


@change
def loaded(model):
    model.load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in model.state_dict().items()})


@change
def loaded_with_assign(model):
    model.load_state_dict({k: v * 2 if v.is_floating_point() else v.clone() for k, v in model.state_dict().items()},
                          assign=True)


@change
def parameter_replaced(model):
    model.linear.weight = nn.Parameter(model.linear.weight * 2, requires_grad=False)
    model.scale = nn.Parameter(model.scale + 1, requires_grad=False)


@change
def parameter_put_into_the_dict(model):
    model.linear._parameters["weight"] = nn.Parameter(model.linear.weight - 1, requires_grad=False)


@change
def bias_removed(model):
    model.linear.bias = None


@change
def buffers_in_place(model):
    model.shift.add_(1)
    model.norm.running_mean.add_(0.5)
    model.norm.running_var.mul_(2)


@change
def buffer_replaced(model):
    model.shift = model.shift * 2
    model.norm.running_mean = torch.ones(8)


@change
def statistics_updated_by_training(model):
    model.train()
    model(torch.ones(2, 3, 8, 8) * 3)
    model.eval()


@change
def to_double_and_back(model):
    model.to(torch.float64)
    model.to(torch.float32)


@change
def to_channels_last(model):
    model.to(memory_format=torch.channels_last)


@change
def configuration(model):
    model.norm.eps = 0.5
    model.conv.stride = (2, 2)


@change
def module_replaced(model):
    torch.manual_seed(9)
    model.linear = nn.Linear(8, 16).requires_grad_(False)
    model.head = nn.Sequential(nn.Linear(16, 4).requires_grad_(False), nn.GELU())


@change
def module_of_a_user_class(model):
    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    torch.manual_seed(9)
    model.linear = Odd(8, 16).requires_grad_(False)


@change
def module_class_replaced(model):
    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    model.linear.__class__ = Odd


@change
def forward_on_the_instance(model):
    linear = model.linear
    linear.forward = lambda x: nn.functional.linear(x, linear.weight) + 3


@change
def forward_of_the_accelerated_module(model):
    model.forward = lambda x: Net.forward(model, x) + 1


@change
def hook(model):
    model.linear.register_forward_hook(lambda m, a, r: r * 2)


@change
def pre_hook(model):
    model.linear.register_forward_pre_hook(lambda m, a: (a[0] + 1,))


@change
def hook_on_the_accelerated_module(model):
    model.register_forward_hook(lambda m, a, r: r - 1)


@change
def training_mode(model):
    model.train()


@change
def weights_tied(model):
    model.head = nn.Linear(8, 4).requires_grad_(False)
    model.linear, model.head = nn.Identity(), nn.Linear(8, 4).requires_grad_(False)
    torch.nn.init.constant_(model.head.weight, 0.5)
    torch.nn.init.zeros_(model.head.bias)
    model.register_buffer("shift", torch.zeros(8))


@change
def parametrised(model):
    from torch.nn.utils import parametrizations

    torch.manual_seed(1)
    if not torch.nn.utils.parametrize.is_parametrized(model.linear):
        parametrizations.weight_norm(model.linear)
    model.linear.parametrizations.weight.original0.add_(1)


@change
def pruned(model):
    from torch.nn.utils import prune

    prune.l1_unstructured(model.linear, "weight", 0.5)


@change
def optimizer_step(model):
    model.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torch.enable_grad():
        model(torch.ones(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    model.requires_grad_(False)
    optimizer.zero_grad()


@change
def averaged_weights(model):
    other = copy.deepcopy(model)
    torch._foreach_mul_(list(model.parameters()), 0.9)
    torch._foreach_add_(list(model.parameters()), list(other.parameters()), alpha=0.2)


@pytest.mark.parametrize("warm", [0, 4])
@pytest.mark.parametrize("function", CHANGES)
def test_model_changes_between_calls(function, warm):
    torch.manual_seed(3)
    plain, model = (copy.deepcopy(net) for net in [Net().eval().requires_grad_(False)] * 2)
    dycl.accelerate(model)
    rtol, atol = bounds("nn.functional.conv2d", torch.float32)
    with torch.no_grad():
        for i in range(warm):
            torch.testing.assert_close(model(inputs()).shape, torch.Size([2, 4]))
        for _ in range(4):
            x = inputs()
            torch.manual_seed(7)
            function(plain)
            torch.manual_seed(7)
            function(model)
            for _ in range(3):
                torch.testing.assert_close(model(x), plain(x), rtol=rtol, atol=atol)
        compare(plain, model, "state", "matmul")
    assert dycl.stats(model)["calls"] > 0 and dycl.stats(model)["recorded"] > 0


def test_a_weight_seen_as_constant_for_long_and_then_written_through_an_old_alias():
    linear = nn.Linear(64, 64).requires_grad_(False)
    alias = linear.weight.data
    model = dycl.accelerate(nn.Sequential(linear, nn.ReLU()))
    x = torch.randn(8, 64)
    with torch.no_grad():
        for i in range(300):
            got = model(x)
            if i % 50 == 20:
                alias.add_(0.1)
                got = model(x)
            torch.testing.assert_close(got, torch.relu(x @ linear.weight.t() + linear.bias), rtol=1e-5, atol=1e-4)


def test_forward_of_a_stock_class_replaced():
    model = dycl.accelerate(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).requires_grad_(False))
    x = torch.randn(2, 4)
    original = nn.Linear.forward
    with torch.no_grad():
        want = model(x)
        try:
            nn.Linear.forward = lambda self, x: original(self, x) + 1
            torch.testing.assert_close(model(x), torch.tanh(original(model[0], x) + 1))
        finally:
            nn.Linear.forward = original
        torch.testing.assert_close(model(x), want)


@pytest.mark.parametrize("name", ["__call__", "_call_impl"])
def test_call_of_every_module_replaced(name):
    model = dycl.accelerate(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).requires_grad_(False))
    x, seen = torch.randn(2, 4), []
    original = getattr(nn.Module, name)

    def spy(self, *args, **kwargs):
        seen.append(type(self).__name__)
        return original(self, *args, **kwargs)

    with torch.no_grad():
        want = model(x)
        before = nn.Module.__dict__.get(name)
        try:
            setattr(nn.Module, name, spy)
            model(x)
        finally:
            setattr(nn.Module, name, before)
        assert "Linear" in seen and "Tanh" in seen
        seen.clear()
        torch.testing.assert_close(model(x), want)
        counts = dycl.stats(model)
        model(x)
        assert not seen and dycl.stats(model)["recorded"] - counts["recorded"] == 2 \
            and counts["torch"] == dycl.stats(model)["torch"]


def test_copies_pickles_and_state_of_an_accelerated_model():
    plain = Net().eval().requires_grad_(False)
    keys = list(plain.state_dict())
    attributes = set(dir(plain))
    model = dycl.accelerate(plain)
    assert model is plain and list(model.state_dict()) == keys and type(model) is Net \
        and set(dir(model)) - attributes == set()
    x = inputs()
    with torch.no_grad():
        want = model(x)
        for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(other(x), want)
        clone = copy.deepcopy(model)
        clone.linear.weight.zero_()
        torch.testing.assert_close(model(x), want)
        assert not torch.allclose(clone(x), want)
    with pytest.raises(TypeError):
        dycl.stats(clone)


def test_a_model_dies_with_its_last_reference():
    import gc
    import weakref

    model = dycl.accelerate(Net().eval().requires_grad_(False))
    with torch.no_grad():
        for _ in range(3):
            model(inputs())
    dead = weakref.ref(model), weakref.ref(model.linear.weight)
    del model
    gc.collect()
    assert dead[0]() is None and dead[1]() is None


PARTS_THAT_HOLD_THE_WHOLE = """
import sys, dycl, torch
from torch import nn

class Part(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.whole = whole

    def forward(self, x):
        return x + len(self.whole.parts)

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Part(self) for _ in range(12))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x

model, x = dycl.accelerate(Whole()), torch.ones(3)
for gradients in (True, False):
    with torch.set_grad_enabled(gradients):
        assert torch.equal(model(x), x + 144)
print(dycl.stats(model)["recorded"], end="")
"""


def test_parts_that_hold_the_whole_end():
    """A walk of the modules that forgot where it had been went 12 ** 16 ways."""
    done = started.run(["-c", PARTS_THAT_HOLD_THE_WHOLE], timeout=100)
    assert (done.stdout, done.returncode) == ("24", 0), done.stderr


@pytest.mark.parametrize("wrap", [dycl.accelerate, lambda model: dycl.accelerate(nn.Sequential(model)),
                                  lambda model: model], ids=["itself", "what holds it", "every module"])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "in a region"])
def test_a_finalizer_calls_a_model_that_dies_with_it(wrap, inside):
    """The garbage collector has cleared weak references to the model then, which is still there."""

    class Late:
        def __del__(self):
            said.append(self.model(torch.ones(2)).tolist())
            said.append(self.model(torch.zeros(2)).sum().item())

    def run(make):
        model, late = make(nn.Sequential(nn.ReLU(), nn.Sigmoid())), Late()
        late.model, model.late = model, late
        model(torch.ones(2))
        del model, late
        gc.collect()

    said = []
    with torch.no_grad():
        run(lambda model: model)
        expected, said = said, []
        with dycl.accelerate_all():
            if inside:
                dycl.accelerate(lambda x: (x + 1, run(wrap), x.sum().item()))(torch.ones(3))
            else:
                run(wrap)
    assert len(said) == 2
    torch.testing.assert_close(said, expected)
