"""Views of what detach answered, written with a history: the alias gets it, what it aliases does not, and other views
of the alias show it. What an operator makes of an alias is no view of it."""

import itertools
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import dycl
from dycl import _core
from suite import FULL, RUNS, copy_of, is_strided, lot, map_tensors, one_thread, tensors_of  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch

ADD = torch.Tensor.add_
# (x, y) -> what is looked at; y has a history
PROGRAMS = {
    "rows": lambda x, y: [a := x.detach(), ADD(a[1:], y)],
    "itself": lambda x, y: [ADD(x.detach(), y)],
    "turned": lambda x, y: [a := x.detach().t().detach(), ADD(a[1:], y)],
    "set": lambda x, y: [a := x.detach(), a.__setitem__(1, y)],
    "set in a part": lambda x, y: [a := x.detach(), a[1:].__setitem__(0, y)],
    "getter": lambda x, y: [a := x.detach(), ADD(a.T[1:], y)],
    "no alias": lambda x, y: [a := x.view(4, 4), ADD(a[1:], y)],
    "data": lambda x, y: [a := x.data, ADD(a[1:], y)],
    "by name": lambda x, y: [a := x.detach(), ADD(torch.transpose(input=a, dim0=0, dim1=1), y)],
    "by name, pending": lambda x, y: [w := x * 1, a := torch.detach(input=w), ADD(torch.ravel(input=a)[4:8], y)],
    "behind an equation": lambda x, y: [w := x * 1, a := w.detach(), ADD(torch.einsum("ij->ji", a), y)],
    "behind another": lambda x, y: [w := x * 1, a := w.detach(), ADD(torch.broadcast_tensors(y, a)[1], y)],
    "one of several, by name": lambda x, y: [
        w := x * 1, ADD(torch.transpose(input=w.chunk(2)[0], dim0=0, dim1=1), y[:2])],
    "identity": lambda x, y: [a := x.detach(), ADD(a.view(4, 4), y)],
    "what it aliases": lambda x, y: [a := x.detach(), ADD(x[1:], y)],
    "nobody has the alias": lambda x, y: [w := x * 1, v := w.detach().t(), ADD(v[1:], y)],
    "nobody has it, two views": lambda x, y: [v := (x * 1).detach().t(), u := v[:2], ADD(v[1:], y), u],
    "pending": lambda x, y: [w := x * 1, a := w.detach(), ADD(a[1:], y)],
    "pending, dead": lambda x, y: [a := (x * 1).detach(), ADD(a[1:], y)],
    "pending, itself": lambda x, y: [w := x * 1, ADD(w.detach(), y)],
    "pending, identity": lambda x, y: [w := x * 1, a := w.detach(), ADD(a.view(4, 4), y)],
    "pending, a part": lambda x, y: [w := x * 1, a := w[1:].detach(), ADD(a[1:], y)],
    "pending, elements": lambda x, y: [w := x * 1, a := w.detach(), ADD(a.view(16)[3:], y[0])],
    "two aliases": lambda x, y: [w := x * 1, a := w.detach(), b := w.detach(), ADD(a[1:], y), ADD(b[:1], y)],
    "two views": lambda x, y: [w := x * 1, a := w.detach(), v := a[:2], ADD(a[1:], y), v],
    "alias of an alias": lambda x, y: [w := x * 1, a := w.detach(), b := a.detach(), ADD(b[1:], y)],
    "history": lambda x, y: [w := x * y, a := w.detach(), ADD(a[1:], y)],
    "history, itself": lambda x, y: [w := x * y, ADD(w.detach(), y)],
    "history, a part": lambda x, y: [w := x * y, a := w[1:].detach(), ADD(a[1:], y)],
    "history, turned": lambda x, y: [w := x * y, a := w.t().detach().t(), ADD(a[1:], y)],
    "history, two views": lambda x, y: [w := x * y, a := w.detach(), v := a[:2], ADD(a[1:], y), v],
}


def outcome(function):
    x, y = torch.ones(4, 4), torch.ones(4, requires_grad=True)
    try:
        results = [t for t in function(x, y) if t is not None] + [x]
        seen = [(t.requires_grad, t.is_leaf, t._version, t.tolist(), t._is_view(),
                 None if t._base is None else (t._base.shape, t._base.requires_grad)) for t in results]
        loss = sum(t.sum() for t in results)
        if loss.requires_grad:
            loss.backward()
        return seen, None if y.grad is None else y.grad.tolist()
    except RuntimeError as error:
        return str(error)[:60]


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_with_a_history(name):
    def program(x, y):
        return [*PROGRAMS[name](x, y * 1), x + 1]

    run = dycl.accelerate(program)
    for _ in range(3):
        assert outcome(run) == outcome(program)


ALIASES = (lambda t: t.detach(), lambda t: t.data, lambda t: t.detach().view(t.shape), lambda t: (t * 1).detach(),
           lambda t: t.chunk(1)[0] if t.dim() else t)


def looks(program, operands):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = tensors_of(program(*map_tensors(copy_of, operands)))
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            return type(error).__name__, []
    return [(t.shape, t.dtype, t.stride(), t._version, t._is_view()) for t in results], results


def _recorded():
    for op in op_db:
        if torch.float32 in op.supported_dtypes("cpu") and "empty" not in op.name and any(
                f is not None and _core.bound(f) for f in (op.op, op.method_variant)):
            yield pytest.param(op, id=op.full_name)


@pytest.mark.parametrize("op", list(_recorded()))
def test_what_is_made_of_an_alias_is_none_of_it(op):
    """Where torch computes something before the segment's end, each result gets its tensor: views of what was computed
    from an alias lie in what was computed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), None if FULL else 3))
    for i, sample in enumerate(samples):
        alias = ALIASES[lot(op.full_name, i) % len(ALIASES)]

        def program(first, args, kwargs, other):
            first, args = map_tensors(lambda t: alias(t) if t.dtype.is_floating_point else t, (first, args))
            result = op.op(first, *args, **kwargs)
            torch.linalg.svdvals(other * 2)  # torch's own
            return result

        operands = (sample.input, sample.args, sample.kwargs, torch.eye(2))
        want, results = looks(program, operands)
        if not all(is_strided(t) for t in results):
            continue
        run = dycl.accelerate(program)
        for _ in range(RUNS):
            got, ours = looks(run, operands)
            assert got == want, f"sample {i}, alias {ALIASES.index(alias)}"
            assert all(map(agree, results, ours)), f"sample {i}, alias {ALIASES.index(alias)}"
