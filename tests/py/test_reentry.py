"""Finalizers run where a tensor is let go of, or where the collector runs: they ask for values of what is being
recorded, record more, and write."""
import gc
import threading
import weakref

import pytest
import torch

import dycl


class Finalizer:
    """Calls it when it dies."""
    def __init__(self, function):
        self.function = function

    def __del__(self):
        self.function()


def garbage(function):
    """What only the collector finds."""
    cycle = [Finalizer(function)]
    cycle.append(cycle)


feeds = [] # plain tensors of the program: a region lets go of them when their segment is over


def both(program, *args, rounds=4):
    """What it gives in a region and eager, several times."""
    run = dycl.accelerate(program)
    for _ in range(rounds):
        feeds[:] = [torch.ones(4) for _ in range(4)]
        got, expected = run(*args), program(*args)
        if isinstance(got, tuple) and isinstance(got[0], str):
            assert got[0] == expected[0]
            got, expected = got[1:], expected[1:]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def collects_always():
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("grad", [False, True])
def test_the_collector_runs_between_a_value_and_its_object(collects_always, grad):
    """The tuple of the results is an object of the collector's: a finalizer that asks for a value ends the segment."""
    weight = torch.full((64,), 0.5, requires_grad=grad)

    def program(x):
        out = []
        for i in range(8):
            y, other = torch.tanh(x * i) * weight, torch.sum(x + i)
            garbage(lambda: out.append(other.item()))
            parts = y.unbind(0) # too many for a tuple that is used again
            out += [parts[0] + parts[-1], len(parts)]
            del parts
        return sorted(v for v in out if isinstance(v, float)), [v for v in out if not isinstance(v, float)]
    run = dycl.accelerate(program)
    for _ in range(4):
        got, expected = run(torch.linspace(-1, 1, 64)), program(torch.linspace(-1, 1, 64))
        torch.testing.assert_close(got[1], expected[1])


@pytest.mark.parametrize("ask", [float, torch.Tensor.item, bool, int, torch.Tensor.tolist, str, torch.Tensor.numpy,
                                 lambda y: y.detach().numpy().copy().tolist()])
def test_what_is_asked_for_is_written_meanwhile(ask):
    """Letting go of what fed the segment writes to the very tensor whose value was asked for."""
    def program(x):
        y, fed = (x * 2).sum(), feeds.pop()
        fed.last = Finalizer(lambda: y.add_(1))
        z = y + fed
        del fed
        result = ask(y)
        return result if not hasattr(result, "dtype") else torch.as_tensor(result), z
    with torch.no_grad():
        both(program, torch.linspace(0, 1, 4))


@pytest.mark.parametrize("write", [lambda y: y.add_(5), lambda y: y.zero_(), lambda y: y.copy_(torch.ones(4)),
                                   lambda y: y.__setitem__(slice(1, 3), 7.0),
                                   lambda y: y.index_copy_(0, torch.tensor([1]), torch.ones(1)),
                                   lambda y: y.detach().numpy().fill(3), lambda y: y.data.fill_(3)])
def test_what_is_written_is_read_meanwhile(write):
    """Before memory is written, what letting go of a feed recorded has to be computed, too."""
    def program(x):
        y, fed, read = x * 2, feeds.pop(), []
        view = y.view(2, 2)
        float(y.sum())
        fed.last = Finalizer(lambda: read.append(y * 3))
        z = y + fed
        del fed
        write(y)
        return z, read, view, y
    with torch.no_grad():
        both(program, torch.linspace(0, 1, 4))


def test_a_written_tensor_lets_go_of_its_history():
    """What was computed is replaced, and its node's finalizer asks for a value of the call that is being recorded."""
    weight = torch.full((4,), 0.5, requires_grad=True)

    def program(x):
        y, other, read = x * weight, torch.sum(x * 2), []
        y.grad_fn.metadata["last"] = Finalizer(lambda: read.append(other.item()))
        with torch.no_grad():
            z = y.detach() * 1
            z.last = Finalizer(lambda: read.append(other.item() + 1))
        y.zero_()
        del z
        w = y + 1
        w.exp_()
        return w, sorted(read)
    both(program, torch.linspace(0, 1, 4))


def test_gradients_are_enabled_while_a_feed_dies():
    weight = torch.full((4,), 0.5, requires_grad=True)

    def program(x):
        kept = []
        with torch.no_grad():
            y, fed = x * weight, feeds.pop()
            fed.last = Finalizer(lambda: kept.append(y * weight))
            z = y + fed
            del fed
        u = z * weight + kept[0]
        return u, u.requires_grad, kept[0].requires_grad, torch.autograd.grad(u.sum(), weight)
    both(program, torch.linspace(0, 1, 4))


def test_threads_ask_for_what_another_one_makes_plain():
    """Who waits for a value finds that its tensor has become plain meanwhile."""
    errors = []

    def program(x):
        def other(y):
            try:
                for _ in range(20):
                    float(y.detach().sum()), y.detach().tolist(), str(y)
            except Exception as e: # noqa: BLE001
                errors.append(e)
        out = []
        for i in range(6):
            y = torch.tanh(x * i) * 0.01
            threads = [threading.Thread(target=other, args=(y,)) for _ in range(2)]
            for t in threads:
                t.start()
            z = (y @ y).sum()
            out += [z.item(), len(str(y)), y.numpy().sum().item()]
            for t in threads:
                t.join()
        return out
    with torch.no_grad():
        both(program, torch.linspace(0, 1, 40000).reshape(200, 200))
    assert not errors


def test_callbacks_of_weak_references_record():
    def program(x):
        kept, references = [], []
        for i in range(5):
            y = x * i
            other = x + i
            references.append(weakref.ref(y, lambda _, o=other: kept.append((o * 2).sum().item())))
            z = (y + other).sum()
            del y
            kept.append(z.item())
        return kept
    with torch.no_grad():
        both(program, torch.linspace(0, 1, 4))
