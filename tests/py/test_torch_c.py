"""torch's C++ functions that take tensors and ask nobody who overrides them: transforms of torch.func, the inside of
autograd, nodes that are called. What they are given is what eager gives them, with its history, memory and version."""

import warnings

import dycl
import pytest
import torch
from same import compare
from torch import func, nn


def outcome(function, *args):
    try:
        return function(*args)
    except (RuntimeError, TypeError) as error:
        return type(error), str(error)


def check(function, *args):
    """Equal in eager and accelerated, twice."""
    want, fast = outcome(function, *args), dycl.accelerate(function)
    for _ in range(2):
        compare(want, outcome(fast, *args), "result", "exp")


LAYER = nn.Linear(2, 2)
ONES = torch.ones(2, 2)
TRANSFORMS = {
    "vmap": lambda y: func.vmap(lambda t: t.exp() @ t)(y),
    "vmap of a layer": lambda y: func.vmap(LAYER)(y),
    "vmap of two": lambda y: func.vmap(torch.dot, in_dims=(0, 1))(y, y * 2),
    "chunks": lambda y: func.vmap(torch.sin, chunk_size=1)(y),
    "grad": lambda y: func.grad(lambda t: (t * t * t).sum())(y),
    "grad_and_value": lambda y: sum(func.grad_and_value(lambda t: (t * t).sum())(y)),
    "grad beside": lambda y: func.grad(lambda t: (t * y).sum())(ONES),
    "vjp": lambda y: func.vjp(torch.sin, y)[1](y)[0],
    "jvp": lambda y: func.jvp(torch.sin, (y,), (ONES,))[1],
    "jacrev": lambda y: func.jacrev(torch.sin)(y),
    "jacfwd": lambda y: func.jacfwd(torch.sin)(y),
    "hessian": lambda y: func.hessian(lambda t: t.sin().sum())(y),
    "functionalize": lambda y: func.functionalize(lambda t: t.clone().add_(1))(y),
    "vmap of grad": lambda y: func.vmap(func.grad(lambda t: (t * t * t).sum()))(y),
    "functional_call": lambda y: func.functional_call(LAYER, {"weight": y, "bias": y[0]}, (ONES,)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_results(name):
    """A gradient goes back through the transform to what the result came from."""
    model = nn.Linear(3, 2)
    leaves = [*model.parameters(), *LAYER.parameters()]

    def step(x, trained):
        with torch.set_grad_enabled(trained):
            y = TRANSFORMS[name](model(x).exp() * 1)
        found = torch.autograd.grad(y.sum(), leaves, allow_unused=True) if trained else None
        return y.detach(), y.requires_grad, found and [g if g is None else g.clone() for g in found]

    check(step, torch.arange(6.0).view(2, 3), True)
    check(step, torch.arange(6.0).view(2, 3), False)


C = torch._C
INSIDE = {
    "increment_version": lambda y: torch.autograd.graph.increment_version(y),
    "increment_version of many": lambda y: torch.autograd.graph.increment_version([y, y]),
    "of what is iterated": lambda y: torch.autograd.graph.increment_version(t for t in (y, y)),
    "of a number": lambda y: C._increment_version(3),
    "preserve": lambda y: C._autograd._unsafe_set_version_counter((y,), (5,)),
    "is_alias_of": lambda y: (C._is_alias_of(y, y[0]), C._is_alias_of(y, y * 1)),
    "overlaps": lambda y: (C._overlaps(y, y[0]), C._overlaps(y[0], y[1])),
    "storage_id": lambda y: C._storage_id(y) == C._storage_id(y[0]),
    "keys": lambda y: str(C._dispatch_keys(y)),
    "negative": lambda y: (C._set_neg(y, True), y.is_neg()),
    "creation_meta": lambda y: str(C._autograd._get_creation_meta(y[0])),
    "undefined": lambda y: (u := C._functions.UndefinedGrad()(y), u.requires_grad, type(u.grad_fn).__name__)[1:],
    "view made again": lambda y: y[0]._view_func(y.detach() * 2).tolist(),
    "view of another": lambda y: y[0]._view_func_unsafe(torch.ones(2, 3)).tolist(),
    "base made again": lambda y: outcome(y[0]._rev_view_func_unsafe, y[0]),
    "delayed": lambda y: type(C._functions.DelayedError("no", 1)(y).grad_fn).__name__,
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_of_autograd(name):
    weight = torch.ones(3, requires_grad=True)

    def step(x, trained):
        with torch.set_grad_enabled(trained):
            y = (x * weight).exp()
            answered = INSIDE[name](y)
            z = y * 2
        return answered, y._version, y.detach().clone(), z.detach(), z.requires_grad

    check(step, torch.arange(6.0).view(2, 3), True)
    check(step, torch.arange(6.0).view(2, 3), False)


def test_counted_before_the_backward_pass():
    """What was recorded reads a plain tensor that is counted as written: an error, as in eager."""
    weight = torch.ones(3, requires_grad=True)

    def step(x):
        y = x * weight
        torch.autograd.graph.increment_version(x)
        y.sum().backward()

    want = outcome(step, torch.ones(2, 3))
    assert want[0] is RuntimeError and outcome(dycl.accelerate(step), torch.ones(2, 3)) == want


def test_states_of_generators():
    """torch reads them from memory that a result does not have yet."""
    drawn = torch.Generator().get_state()

    def step(way):
        generator = torch.Generator()
        if way == 0:
            generator.set_state(drawn.clone())
        elif way == 1:
            generator.__setstate__((*generator.__reduce__()[2][:2], drawn.clone()))
        else:
            torch.set_rng_state(drawn.clone())
        return torch.rand(3, generator=generator if way < 2 else None)

    for way in range(3):
        check(step, way)
    check(lambda x: torch.Generator().set_state(x * 2), torch.ones(3))


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(3))

    def forward(self, x):
        return x * self.kept


def test_attributes_of_scripts():
    """What TorchScript's objects are given has its history."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(Scripted())
    weight = torch.ones(3, requires_grad=True)

    def step(x):
        script.kept = (x * weight).exp()
        gradient, = torch.autograd.grad(script(x).sum(), weight)
        return gradient

    check(step, torch.arange(3.0))


def test_gradcheck():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()

    def step(x):
        return torch.autograd.gradcheck(model, (x,)), torch.autograd.gradgradcheck(model, (x,))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(step, torch.randn(2, 3, dtype=torch.double, requires_grad=True))


def test_methods_that_functions_have_more_overloads_than():
    """torch.repeat_interleave takes the numbers alone; the method is an error without them."""
    check(lambda x: torch.repeat_interleave(x * 2), torch.tensor([1, 2]))
    check(lambda x: (x * 2).repeat_interleave(), torch.tensor([1, 2]))
    check(lambda x: (x * 2).repeat_interleave(output_size=6), torch.tensor([1, 2]))


SILENT = {
    "function": lambda y: torch.exp(y),
    "two": lambda y: torch.add(y, y),
    "of nn": lambda y: torch.nn.functional.gelu(y),
    "layer": lambda y: torch.nn.functional.linear(LAYER(y), LAYER.weight),
    "operator": lambda y: y @ LAYER.weight * 2,
    "view": lambda y: y[0].view(2, 1).t(),
    "written": lambda y: (y * 1).add_(1),
    "list": lambda y: torch.stack([y, y * 2]),
    "dropout": lambda y: torch.nn.functional.dropout(y, 0.5),
    "left again": lambda y: y.sin(),
}


@pytest.mark.parametrize("name", SILENT)
def test_functions_are_disabled(name):
    """Within torch._C.DisableTorchFunction no mode is asked either."""
    model = nn.Linear(3, 2)

    def step(x, inner):
        torch.manual_seed(0)
        y = model(x).exp() * 1
        with C.DisableTorchFunction():
            z = SILENT[name](y)
            if inner:
                with C.DisableTorchFunction():
                    z = z * 2
                z = torch.tanh(z)
        total = (torch.relu(z) * z).sum()
        found = torch.autograd.grad(total, list(model.parameters()))
        return z.grad_fn.name(), z.detach().clone(), *(g.clone() for g in found)

    check(step, torch.arange(6.0).view(2, 3), False)
    check(step, torch.arange(6.0).view(2, 3), True)


def test_calls_while_functions_are_disabled():
    model = nn.Linear(3, 2)

    def step(x):
        return torch.autograd.grad(torch.relu(torch.add(model(x), x[:, :2])).sum(), model.weight)[0].clone()

    with C.DisableTorchFunction():
        check(step, torch.arange(6.0).view(2, 3))


WRITERS = {
    "range": lambda o: torch.range(0, 3, out=o), "arange": lambda o: torch.arange(4, out=o),
    "linspace": lambda o: torch.linspace(0, 1, 4, out=o), "full": lambda o: torch.full((4,), 2.0, out=o),
    "zeros": lambda o: torch.zeros(4, out=o), "rand": lambda o: torch.rand(4, out=o),
    "normal": lambda o: torch.normal(0.0, 1.0, (4,), out=o), "randperm": lambda o: torch.randperm(4, out=o),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_what_is_made_in_memory_that_is_read(name):
    weight = torch.ones(4, requires_grad=True)

    def step(x, kind):
        out = x if kind == "argument" else x * 1 if kind == "pending" else torch.zeros(4)
        torch.manual_seed(0)
        with torch.set_grad_enabled(kind == "trained"):
            y = weight * out
            WRITERS[name](out)
        if kind == "trained":
            y.sum().backward()
        return y.detach().clone(), out.clone(), out._version

    for kind in ("argument", "pending", "made", "trained"):
        check(lambda x, kind=kind: step(x.clone(), kind), torch.ones(4))
