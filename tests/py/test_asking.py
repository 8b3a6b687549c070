"""Methods of torch.Tensor that are written in Python and ask for overrides first: what tracebacks, warnings and the
program see of their calls on results, and what a program replaces. And what leaves a region from within such a call."""

import copy
import inspect
import traceback
import warnings

import pytest
import torch
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

ERRORS = {
    "backward": lambda x: x.backward(),
    "backward of another shape": lambda x: x.sum().backward(torch.ones(3)),
    "post accumulate": lambda x: x.register_post_accumulate_grad_hook(print),
    "unique": lambda x: x.unique(dim=5),
    "unique_consecutive": lambda x: x.unique_consecutive(dim=5),
    "stft": lambda x: x.stft(4),
    "deepcopy": lambda x: copy.deepcopy(x),
    "format": lambda x: f"{x:d}",
    "setstate": lambda x: x.__setstate__(3),
    "dlpack": lambda x: x.__dlpack__(stream=3),
}


class Warns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        for level in range(2, 7):
            warnings.warn("a hook's", stacklevel=level)
        return g


def _frames(call):
    with pytest.raises((RuntimeError, TypeError, IndexError, BufferError)) as caught:
        call()
    return [(f.name, f.lineno) for f in traceback.extract_tb(caught.value.__traceback__)][2:]


@pytest.mark.parametrize("case", ERRORS)
def test_tracebacks(case):
    weight = torch.randn(3, 3, requires_grad=True)

    def program(x):
        return _frames(lambda: ERRORS[case](x @ weight))

    x, run = torch.randn(3, 3), dycl.accelerate(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = program(x)
        for _ in range(2):
            assert run(x) == want


def test_warnings_name_the_line_of_the_program():
    weight = torch.randn(3, requires_grad=True)

    def program():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Warns.apply(weight * 3).sum().backward()
        return [(str(w.message), w.filename, w.lineno) for w in caught]

    want, run = program(), dycl.accelerate(program)
    assert want and run() == want


def test_methods_that_are_taken_are_torchs():
    def program(x):
        y = x * 2
        return [y.backward.__func__ is torch.Tensor.backward, type(y).backward is torch.Tensor.backward,
                y.backward.__self__ is y, y.register_hook == y.register_hook, str(inspect.signature(y.backward)),
                y.unique.__name__, y.__format__.__doc__, y.__deepcopy__({}) is y, sorted(y.__dir__())[:3]]

    x, run = torch.ones(3), dycl.accelerate(program)
    assert run(x) == program(x)


def test_a_method_that_was_replaced_is_what_the_program_gets():
    weight, seen = torch.randn(3, requires_grad=True), []
    was = torch.Tensor.backward

    def mine(self, *args, **kwargs):
        seen.append((type(self) == torch.Tensor, args, kwargs))  # noqa: E721 (what a lazy type answers)
        return was(self, *args, **kwargs)

    def program():
        loss = (weight * 2).sum()
        loss.backward(retain_graph=True)
        loss.backward.__func__(loss)
        return (loss + 1).detach()

    run = dycl.accelerate(program)
    run()
    torch.Tensor.backward = mine
    try:
        before = dycl.stats(run)["recorded"]
        run()
        assert seen == [(True, (), {"retain_graph": True}), (True, (), {})]  # not once more, where torch's asks
        assert dycl.stats(run)["recorded"] > before  # what is no operator is no reason to stop
        torch.Tensor.backward = staticmethod(lambda *args: seen.append(len(args)))
        with pytest.raises(TypeError):
            run()
    finally:
        torch.Tensor.backward = was
    run()
    assert torch.equal(weight.grad, torch.full((3,), 12.0))


REPLACED = {
    "a method": (torch.Tensor, "backward", lambda x: x.sum().backward()),
    "of a parameter": (torch.Tensor, "backward", lambda x: x.sum().detach().requires_grad_().backward()),
    "a function": (torch.autograd, "grad", lambda x: torch.autograd.grad(x.sum(), x)),
    "a hook": (torch.Tensor, "register_hook", lambda x: x.register_hook(print)),
    "a method of plain tensors": (torch.Tensor, "unique", lambda x: torch.ones(3).unique()),
    "a function that is recorded": (torch.functional, "einsum", lambda x: torch.functional.einsum("ij->ji", x)),
    "repr": (torch.Tensor, "__repr__", lambda x: repr(x)),
}


@pytest.mark.parametrize("case", REPLACED)
@pytest.mark.parametrize("early", [False, True])
def test_what_calls_torchs_own_is_called_once(case, early):
    """Where torch's function asks who overrides it, it names what stands under its name."""
    owner, name, call = REPLACED[case]
    was, seen = getattr(owner, name), []

    def mine(*args, **kwargs):
        seen.append((len(args), sorted(kwargs)))
        return was(*args, **kwargs)

    def program(x):
        call(x @ x)

    x, run = torch.randn(3, 3, requires_grad=True), dycl.accelerate(program)
    if not early:
        run(x)
    setattr(owner, name, mine)
    try:
        program(x)
        run(x)
        run(x)
    finally:
        setattr(owner, name, was)
    assert seen == 3 * seen[:1]


def test_stepping_aside_within_a_call_that_torch_runs_leaves_no_mode():
    """torch sets our mode aside for such a call, and puts it back behind it."""
    weight = torch.randn(3, requires_grad=True)

    def hook(gradient):
        torch.jit.trace(lambda g: g * 2, (gradient,))

    def program():
        loss = (weight * 2).sum()
        loss.register_hook(hook)
        torch.autograd.backward(loss)
        hook(torch.ones(2))
        return loss * 2

    run = dycl.accelerate(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            run()
            assert torch._C._len_torch_function_stack() == 0
    assert dycl.stats(run)["calls"] == 2


class Sees(TorchFunctionMode):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function.__name__)
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.mul else result


@pytest.mark.parametrize("kind", ["tensor", "function"])
def test_a_mode_of_the_program_in_a_hook_sees_what_is_called(kind):
    """Our mode is off the stack there, and theirs stands in its place."""
    layer, seen = torch.nn.Linear(3, 3), []

    def hook(*gradients):
        with Sees(seen):
            x = torch.mul(torch.ones(2, 3), 2)
            y = torch.nn.functional.gelu(layer(x + 1).exp()).norm()
            seen.append((x.tolist(), type(y) is torch.Tensor, len(x), y.shape))

    class Calls(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            hook()
            return g

    def program():
        seen.clear()
        y = layer(torch.ones(2, 3))
        if kind == "tensor":
            y.register_hook(hook)
        (Calls.apply(y) if kind == "function" else y).sum().backward()
        hook()
        return list(seen)

    want, run = program(), dycl.accelerate(program)
    for _ in range(2):
        assert run() == want


def test_functions_of_the_program_that_ask_are_called_once():
    seen = []

    def doubled(x):
        seen.append("asks")
        if has_torch_function_unary(x):
            return handle_torch_function(doubled, (x,), x)
        seen.append("runs")
        return x * 2

    def program(x):
        seen.clear()
        y = doubled(x + 1)
        with Sees(seen):
            z = doubled(y)
        return doubled(z).tolist(), doubled(x).tolist(), list(seen)

    x, run = torch.ones(3), dycl.accelerate(program)
    want = program(x)
    for _ in range(2):
        assert run(x) == want
    assert dycl.stats(run)["recorded"] >= 4
