"""Views of what detach answered, written with a history: the alias gets it, what it aliases does not, and other views
of the alias show it."""

import pytest
import torch

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

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
