"""Where torch's parser raises a TypeError of a lazy tensor, it is asked again of a plain one. Where the program's own
code raised it, nothing runs again: that code ran once."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import dycl

CALLS = {
    "torch.add": lambda y, o: torch.add(y, o), "add": lambda y, o: y.add(o), "add_": lambda y, o: y.add_(o),
    "alpha": lambda y, o: torch.add(y, y, alpha=o), "cat": lambda y, o: torch.cat([y, o]),
    "stack": lambda y, o: torch.stack((y, o)), "where": lambda y, o: torch.where(y > 0, y, o),
    "linear": lambda y, o: F.linear(y, o), "masked_fill": lambda y, o: y.masked_fill(y > 0, o),
    "maximum": lambda y, o: torch.maximum(y, o), "operator": lambda y, o: y + o, "sum": lambda y, o: y.sum(o),
    "reversed": lambda y, o: torch.add(o, y), "key": lambda y, o: y[o], "gelu": lambda y, o: F.gelu(y, approximate=o),
}


def raises(n):
    raise TypeError(f"call {n}")


def raises_first(n):
    return raises(n) if n == 1 else "done"


def refuses(n):
    return NotImplemented


def draws(n):
    torch.rand(1)
    raise TypeError


BEHAVIOURS = (raises, raises_first, refuses, draws)


class Holder:
    """No tensor, with a say."""


class Subclass(torch.Tensor):
    """A tensor, whose handler does the work before it raises."""


def another(behaviour, log, base):
    def handler(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", str(func))
        if base is Subclass and name in ("__get__", "as_subclass"):
            return super(Subclass, cls).__torch_function__(func, types, args, kwargs or {})
        log.append(name)
        if base is Subclass and behaviour is raises:
            super(Subclass, cls).__torch_function__(func, types, args, kwargs or {})
        return behaviour(len(log))

    kind = type(base.__name__, (base,), {"__torch_function__": classmethod(handler)})
    return kind() if base is Holder else torch.ones(3).as_subclass(kind)


def story(name, behaviour, base, accelerated, plain):
    log, said = [], []
    other = another(behaviour, log, base)

    def program(x):
        y = x if plain else x * 1
        try:
            result = CALLS[name](y, other)
        except Exception as error:  # noqa: BLE001
            result = type(error)
        with torch._C.DisableTorchFunctionSubclass():
            return (result if isinstance(result, (str, type)) else type(result), torch.rand(1).item(),
                    (y * 1).tolist())

    run = dycl.accelerate(program) if accelerated else program
    torch.manual_seed(3)
    for _ in range(3):
        said.append(run(torch.ones(3)))
    return said, log


@pytest.mark.parametrize("name, behaviour, base", [
    pytest.param(*case, id="-".join((case[0], case[1].__name__, case[2].__name__)))
    for case in itertools.product(CALLS, BEHAVIOURS, (Holder, Subclass))])
def test_own_handlers_run_once(name, behaviour, base):
    for plain in (False, True):
        with torch.no_grad():
            want, got = (story(name, behaviour, base, accelerated, plain) for accelerated in (False, True))
        assert got == want


def test_dispatch_modes_run_once():
    def of(accelerated):
        log = []

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                log.append(str(func))
                raise TypeError("mine")

        def program(x):
            y = x * 1
            with Mode():
                try:
                    torch.add(y, x)
                except TypeError as error:
                    log.append(str(error))
            return y + 1

        run = dycl.accelerate(program) if accelerated else program
        return [run(torch.ones(3)).tolist() for _ in range(3)], log

    assert of(True) == of(False)
