"""Writes into memory that others see: a plain tensor's, and that of lazy tensors with views. Equal to eager in values,
versions, identity and aliasing."""

import random
import threading

import dycl
import numpy
import pytest
import torch
from suite import check


def no_torch(stats):
    assert stats["torch"] == 0, stats


def test_plain_tensors_are_written_at_once():
    def program(state, counter, x):
        view = state[1:]  # of what it was: sees the write
        before = state + 0
        state.copy_(x * 2)
        counter.add_(3)
        after = state + counter
        state[0] = 7
        state[:, 1:2] = x[:, :1]
        state.mul_(2).sub_(x)
        return view + 0, view, before, after, state, state._version, counter._version, state.sum()

    for shape in ((3, 4), (1, 5), (2, 3, 2)):
        no_torch(check("copy", program, (torch.randn(shape), torch.tensor(1), torch.randn(shape)), "plain"))
    no_torch(check("copy", program, (torch.randn(4, 3).t(), torch.zeros(1), torch.randn(1, 4).expand(3, 4)),
                   "transposed"))
    no_torch(check("copy", program, (torch.zeros(2, 2, dtype=torch.int64), torch.tensor(1),
                                     torch.ones(2, 2, dtype=torch.int64)), "integers"))


def test_the_very_object_comes_back():
    state = torch.zeros(3)
    results = []

    def program(x):
        results.append(state.copy_(x + 1) is state)
        return state

    accelerated = dycl.accelerate(program)
    with torch.no_grad():
        for i in range(3):
            assert accelerated(torch.ones(3) * i) is state and torch.equal(state, torch.ones(3) * (i + 1))
            assert state._version == i + 1
    assert all(results) and dycl.stats(accelerated)["torch"] == 0


def test_rows():
    draw = random.Random(3)
    for _ in range(30):
        shape = [draw.randint(1, 6) for _ in range(draw.randint(1, 4))]
        dim = draw.randrange(len(shape))
        index = torch.tensor([draw.randrange(shape[dim]) for _ in range(draw.randint(1, 4))])
        source = torch.randn([*shape[:dim], len(index), *shape[dim + 1 :]])

        def program(state, index, source):
            cache = source.new_zeros(shape)
            cache.index_copy_(dim, index + 0, source * 1)
            cache.index_copy_(dim, index, source * 2)
            state.index_copy_(dim, index * 1, source)
            return cache, state, cache * 2, state * 2

        if dim >= 0:
            no_torch(check("copy", program, (torch.randn(shape), index, source), f"{shape} {dim} {index.tolist()}"))


def test_lazy_tensors_with_views():
    def program(x):
        y = x * 2
        view = y[1:]
        view.add_(1)
        y[0] = 5
        twice = y.view(-1)
        twice[3:].mul_(2)
        y.t().sub_(1)
        last = y.detach()
        last.zero_()
        y.copy_(x)
        return y, view, twice, last

    no_torch(check("copy", program, (torch.randn(3, 3),), "views"))


def test_memory_that_is_the_same():
    def program(x, plain):
        plain[1:] = plain[:-1] * 1
        plain.copy_(plain.flip(0))
        plain.view(-1)[::2].copy_(plain.view(-1)[::2] + 1)
        plain[:] = plain
        y = x + 1
        y[1:].copy_(y[:-1] * 2)
        y.copy_(y)
        return y, plain

    check("copy", program, (torch.randn(4, 2), torch.randn(4, 2)), "overlap")

    def overlapping(x, plain):
        plain[1:] = plain[:-1]  # torch's own answer, whatever it is
        wide = x[:1].expand(3, 2)
        wide.copy_(x[:3])
        return plain

    check("copy", overlapping, (torch.randn(4, 2), torch.randn(4, 2)), "one element twice")
    for own in (lambda y: y.__setitem__((slice(None), None), y), lambda y: y.__setitem__(0, y),
                lambda y: y.__setitem__(..., y), lambda y: y.long().__setitem__(y.long() * 0, 1)):
        check("copy", lambda x, plain: (y := x + 1, own(y), own(plain), y * 2, plain * 2),
              (torch.randn(2, 2), torch.randn(2, 2)), "of itself")


def test_arrays_and_other_holders_see_the_write():
    array = numpy.zeros((2, 3), dtype=numpy.float32)
    shared, seen = torch.from_numpy(array), []

    def program(x):
        shared.copy_(x + 1)
        seen.append(array.copy())
        thread = threading.Thread(target=lambda: seen.append(shared.clone().numpy()))
        thread.start()
        thread.join()
        shared.add_(1)
        seen.append(array.copy())
        return shared

    with torch.no_grad():
        for run in (program, dycl.accelerate(program)):
            seen.clear()
            run(torch.ones(2, 3))
            assert [a.tolist() for a in seen] == [[[2.0] * 3] * 2, [[2.0] * 3] * 2, [[3.0] * 3] * 2]


def test_parameters_gradients_and_inference():
    layer = torch.nn.Linear(3, 3)

    def parameters(x):
        with torch.no_grad():
            y = torch.nn.functional.linear(x, layer.weight)
            layer.weight.mul_(0.5)
            layer.weight.detach()[0] = 1
            layer.weight.data.add_(1)
            return y, torch.nn.functional.linear(x, layer.weight), layer.weight._version

    start = layer.weight.detach().clone()
    outcomes = []
    for run in (parameters, dycl.accelerate(parameters)):
        for _ in range(4):
            with torch.no_grad():
                layer.weight.copy_(start)
                version = layer.weight._version
                a, b, after = run(torch.ones(2, 3))
            outcomes.append((a, b, after - version))
    for a, b, versions in outcomes[1:]:
        torch.testing.assert_close(a, outcomes[0][0])
        torch.testing.assert_close(b, outcomes[0][1])
        assert versions == outcomes[0][2]

    def program(state, x):
        state.copy_(x + 1)
        state[0] = 2
        return state, state.requires_grad

    base = torch.zeros(3, 3, requires_grad=True)
    for state in (base, torch.zeros(3, 3)):
        for grad in (True, False):
            with torch.no_grad():
                view = state.view(-1)
            check("copy", program, (state, torch.randn(3, 3)), "leaf", grad=grad)
            if grad or not state.requires_grad:
                check("copy", lambda s, x: program(s.view(3, 3), x), (view, torch.randn(3, 3)), "view", grad=grad)
    for inside in (True, False):
        with torch.inference_mode():
            frozen = torch.zeros(3, 3)

        def inference(x):
            with torch.inference_mode(inside):
                state = frozen if not inside else torch.zeros(3, 3)
                state.copy_(x + 1)
                return state

        check("copy", inference, (torch.randn(3, 3),), "inference")
    ordinary = torch.zeros(3, 3)
    with torch.inference_mode():
        versions = []
        for run in (program, dycl.accelerate(program)):
            before = ordinary._version
            run(ordinary, torch.ones(3, 3))
            versions.append(ordinary._version - before)
    assert versions[0] == versions[1]


def test_errors():
    for f in (
        lambda p, x: p.copy_(x[:2]), lambda p, x: p.add_(x.double().long() + 0.5 if p.dtype == torch.int64 else x[:2]),
        lambda p, x: p.index_copy_(0, torch.tensor([9]), x[:1]),
        lambda p, x: p.index_copy_(3, torch.tensor([0]), x[:1]),
        lambda p, x: p.index_copy_(0, torch.tensor([0.0]), x[:1]),
        lambda p, x: p.index_copy_(0, torch.tensor([0]), x[:1].double()),
        lambda p, x: p.index_copy_(0, torch.tensor([-1]), x[:1]), lambda p, x: p.__setitem__(7, 1),
        lambda p, x: p[:1].expand(3, 3).add_(x), lambda p, x: p.copy_(3),
    ):  # fmt: skip
        check("copy", f, (torch.zeros(3, 3), torch.randn(3, 3)), "error")
    check("copy", lambda p, x: p.add_(x), (torch.zeros(3, 3, dtype=torch.int64), torch.randn(3, 3)), "error")


def test_an_exception_after_the_write():
    state = torch.zeros(3)

    def program(x):
        state.copy_(x + 1)
        raise KeyError("after")

    with torch.no_grad(), pytest.raises(KeyError):
        dycl.accelerate(program)(torch.ones(3))
    assert state.tolist() == [2.0] * 3


@pytest.mark.parametrize("learns", ["self", "source", "both"])
@pytest.mark.parametrize("rows", [[0, 2], [1], []])
def test_rows_with_a_history(learns, rows):
    """What is copied into a tensor, and the tensor itself, may have one: it is torch's graph then."""
    base, given = torch.randn(3, 2), torch.randn(len(rows), 2)
    index = torch.tensor(rows, dtype=torch.int64)

    def program(a, b):
        x, y = a * 2, b.sin()
        x.index_copy_(0, index, y)
        return x

    outcomes = []
    for run in (program, dycl.accelerate(program)):
        for _ in range(2):
            a, b = base.clone().requires_grad_(learns != "source"), given.clone().requires_grad_(learns != "self")
            result = run(a, b)
            leaves = [t for t in (a, b) if t.requires_grad]
            outcomes.append((result.detach(), result._version, type(result.grad_fn).__name__,
                             *torch.autograd.grad(result.square().sum(), leaves)))
    for got in outcomes[1:]:
        assert got[1:3] == outcomes[0][1:3]
        assert all(map(torch.equal, (got[0], *got[3:]), (outcomes[0][0], *outcomes[0][3:])))
