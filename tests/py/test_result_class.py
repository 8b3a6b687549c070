"""type(x) of a result while a region runs: another object than torch.Tensor, which stands for it in tables,
comparisons, calls and pickles."""

import collections.abc
import copy
import copyreg
import functools
import io
import pickle
import threading
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing
from same import Programs, same

program = Programs()
KINDS = {torch.Tensor: "tensor", torch.nn.Parameter: "parameter", int: "int", list: "list"}


class Mine(torch.Tensor):
    pass


@pytest.mark.parametrize("function, make, options", program.cases)
def test_results(function, make, options):
    same(function, make, **options)


@program()
def looked_up(x, y):
    a = x + y
    kind = type(a)
    return KINDS[kind], KINDS.get(kind), kind in KINDS, kind in (list, torch.Tensor), \
        {kind, type(x)} == {torch.Tensor}, hash(kind) == hash(torch.Tensor), len({kind: 1, type(y): 2, int: 3}), a


@program()
def compared(x, y):
    a = x + y
    kind = type(a)
    return kind == torch.Tensor, torch.Tensor == kind, kind != torch.Tensor, kind == type(x * 2), kind == int, \
        int != kind, kind == Mine, Mine != kind, kind != torch.nn.Parameter, kind == "Tensor", a


@program()
def asked_what_is_of_it(x, y):
    a = x + y
    kind = type(a)
    return isinstance(x, kind), isinstance(a, kind), isinstance(3, kind), isinstance(x.as_subclass(Mine), kind), \
        issubclass(Mine, kind), issubclass(torch.Tensor, kind), issubclass(int, kind), issubclass(kind, torch.Tensor), \
        isinstance(a, type(x)), isinstance(a, collections.abc.Iterable), kind.__name__, kind.__module__


@program()
def made_of_it(x, y):
    a = x + y
    kind = type(a)
    made = kind([1.0, 2.0]), kind(2, 3).zero_(), kind(), x.as_subclass(kind), (a * 2).as_subclass(kind), \
        x.as_subclass(cls=kind), torch.Tensor._make_subclass(kind, x), x.as_subclass(Mine).as_subclass(kind)
    return *made, [type(m) == torch.Tensor for m in made], made[0] + 1, kind.add(a, 1), a.sum()


@program()
def dispatched(x, y):
    @functools.singledispatch
    def show(v):
        return type(v).__name__

    @show.register
    def _(v: torch.Tensor):
        return v * 2

    return show(x), show(x + y), show(3), show(x - y)


@program()
def pickled(x, y):
    a = x + y
    kind = type(a)
    there = io.BytesIO()
    torch.save({"kind": kind, "a": a}, there)
    there.seek(0)
    loaded = torch.load(there, weights_only=False)
    return pickle.loads(pickle.dumps(kind)) is torch.Tensor, pickle.loads(pickle._dumps(kind, 2)) is torch.Tensor, \
        loaded["kind"] is torch.Tensor, loaded["a"], copy.deepcopy(kind) == torch.Tensor


@program()
def pickled_by_a_function_of_the_program(x, y):
    seen = []

    def reduce(t):
        seen.append(tuple(t.shape))
        return torch.tensor, (t.tolist(),)

    a = x + y
    copyreg.pickle(torch.Tensor, reduce)
    try:
        made = pickle.loads(pickle.dumps([a, x])), copy.copy(a), copy.deepcopy([a])
    finally:
        del copyreg.dispatch_table[torch.Tensor]
    return a, made, seen


@program()
def shared_with_another_process(x, y):
    a = x + y
    there = pickle.loads(ForkingPickler.dumps(a))
    there.add_(1)
    return a, a.is_shared(), a.sum()


@program()
def sent_through_a_queue(x, y):
    context = torch.multiprocessing.get_context("fork")
    queue, a = context.SimpleQueue(), x + y
    thread = threading.Thread(target=lambda: queue.get().add_(1))
    thread.start()
    queue.put(a)
    thread.join()
    return a, a.is_shared(), a * 2
