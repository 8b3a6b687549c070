"""Lifetimes and identity: what is kept beyond the call, weak references, cycles, tracebacks, generators, memory that
must not grow."""

import gc
import os
import sys
import tracemalloc
import weakref

import dycl
import pytest
import torch
from same import Programs, same


program = Programs()
KEPT = {}


@pytest.mark.parametrize("function, make, options", program.cases)
def test_objects(function, make, options):
    same(function, make, between=KEPT.clear, **options)


@program()
def kept_in_a_global(x, y):
    before = KEPT.get("sum")
    KEPT["sum"] = x + y if before is None else before * 2
    return before, KEPT["sum"], KEPT["sum"] is before


@program()
def kept_in_a_closure(x, y):
    a = x + y
    calls = KEPT.setdefault("calls", [])
    calls.append(lambda: a * 2)
    return [f() for f in calls[-2:]]


@program()
def kept_in_a_default(x, y, cache=None):
    def f(v, seen=[x * 3]):  # noqa: B006
        seen.append(v + seen[-1])
        return seen

    f(x)
    return f(y)


@program()
def attributes_on_results(x, y):
    a = x + y
    a.note, a.parent = "text", x
    b = a * 2
    b.child = a
    n = a.note
    a.view(-1).extra = 1
    del a.note
    return a, b, n, hasattr(a, "note"), vars(b)["child"] is a, hasattr(a, "extra")


@program()
def weak_references(x, y):
    a, b = x + y, x - y
    r, s = weakref.ref(a), weakref.ref(b)
    d = weakref.WeakKeyDictionary({a: 1})
    v = weakref.WeakValueDictionary(a=a, b=b)
    died = []
    weakref.finalize(b, died.append, "b")
    del b
    gone = s() is None
    float(a.sum())
    KEPT["ref"], KEPT["keys"] = r, d
    return r() is a, gone, died, d[a], sorted(v), a, len(d)


@program()
def weak_reference_survives_the_call(x, y):
    a = x + y
    KEPT["a"] = a
    old = KEPT.get("ref")
    KEPT["ref"] = weakref.ref(a)
    return None if old is None else old(), a


@program(like="matmul")
def finalizers_compute(x, y):
    seen = []

    class Last:
        def __init__(self, t):
            self.t = t

        def __del__(self):
            seen.append((self.t * 2).sum())

    a = x + y
    Last(a)
    b = a * 3
    k = Last(b)
    del k
    cycle = [Last(a - 1)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    return seen, b


@program()
def finalizers_at_the_end(x, y):
    class Last:
        def __init__(self, t):
            self.t = t

        def __del__(self):
            KEPT.setdefault("late", []).append(self.t.exp() + 1)

    a = x + y
    a.guard = Last(x * 2)
    a.add(1).guard = Last(y * 2)
    late = KEPT.pop("late", None)
    return late


@program()
def cycles(x, y):
    for i in range(20):
        a = x + i
        a.me = [a, a * 2]
        b = a - 1
        b.other, a.other = a, b
        l = [b.t()]
        l.append(l)
    del a, b, l
    found = gc.collect() > 0
    c = x + y
    c.me = c
    return c.sum(), found


@program()
def cycles_of_computed_results(x, y):
    for i in range(5):
        a = x + i
        a.me = a
        float(a.sum())
        b = a.t()
        b.me = [b]
    del a, b
    gc.collect()
    return (x * 2).sum()


@program()
def collected_inside(x, y):
    a = x + y
    gc.collect()
    b = a * 2
    gc.collect()
    return a, b


@program()
def swapped_names(x, y):
    a, b = x + 1, y + 1
    for _ in range(10):
        a, b = b, a + b
    return a, b


@program()
def generators(x, y):
    def numbers(t):
        for i in range(4):
            got = yield t * i
            if got is not None:
                t = t + got

    g = numbers(x)
    first = next(g)
    second = g.send(y)
    suspended = numbers(x - y)
    next(suspended)
    KEPT["suspended"] = suspended
    return first, second, list(g), sum(r.sum() for r in numbers(y))


@program()
def generator_returned(x, y):
    old = KEPT.get("g")
    result = None if old is None else next(old)
    a = x + y
    KEPT["g"] = (a * i for i in range(3))
    return result, next(KEPT["g"])


@program()
def context_managers(x, y):
    import contextlib

    @contextlib.contextmanager
    def scaled(t):
        yield t * 2
        KEPT["left"] = t * 3

    with scaled(x) as a, contextlib.ExitStack() as stack:
        stack.callback(lambda: KEPT.__setitem__("called", a + 1))
        b = a + y
    return a, b, KEPT["left"], KEPT["called"]


@program()
def recursion(x, y):
    def fib(n):
        return x * n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(9)


@program()
def comprehension_and_map(x, y):
    return ([r * 2 for r in x], list(map(torch.relu, y.unbind())), {i: v for i, v in enumerate(x + y)},
            list(zip(x + 1, y)), any(v > 0 for v in (x + y)[0]))


@program(recorded=None)
def uncaught_with_results_in_the_traceback(x, y):
    a = x + y
    b = a * 2
    raise ValueError(a.shape, b.dim())


def test_traceback_holds_plain_tensors():
    @dycl.accelerate
    def program(x):
        a = x * 2
        b = a + 1
        raise ValueError("with", a, [b.t()])

    x = torch.ones(2, 3)
    with torch.no_grad():
        try:
            program(x)
        except ValueError as error:
            found, traceback = error.args, error.__traceback__
    assert type(found[1]) is torch.Tensor and torch.equal(found[1], x * 2) and torch.equal(found[2][0], (x * 2 + 1).t())
    while traceback.tb_next:
        traceback = traceback.tb_next
    values = traceback.tb_frame.f_locals
    assert type(values["a"]) is torch.Tensor and values["a"] is found[1] and torch.equal(values["b"], x * 2 + 1)


def test_nested_regions_and_reentry():
    inner = dycl.accelerate(lambda t: t * 2)

    @dycl.accelerate
    def outer(x, depth):
        a = inner(x) + 1
        return outer(a, depth - 1) if depth else (a, a.t())

    with torch.no_grad():
        x = torch.ones(2, 3)
        a, b = outer(x, 3)
    assert torch.equal(a, torch.full((2, 3), 31.0)) and b.shape == (3, 2) and type(a) is type(b) is torch.Tensor
    assert dycl.stats(outer)["plain_nested"] == 3 and dycl.stats(inner)["plain_nested"] == 4 \
        and dycl.stats(inner)["recorded"] == 0


class Collects:
    """Its finalizer collects what is no longer reachable, and some of it was reachable through what dies now."""
    died = 0

    def __del__(self):
        Collects.died += 1
        gc.collect()


@pytest.mark.parametrize("finalizer", ["metadata", "attribute", "weak"])
def test_the_collector_runs_while_a_result_dies(finalizer):
    """What a dying result lets go of may run it: it must not find the result without references."""
    layer, callbacks = torch.nn.Linear(4, 4), []

    def program(x):
        seen = []
        for i in range(5):
            y = torch.tanh(layer(x)) * (i + 1)
            if finalizer == "metadata":
                y.grad_fn.metadata["last"] = Collects()
            elif finalizer == "attribute":
                y.last = [Collects(), y]
            else:
                callbacks.append(weakref.ref(y, lambda _: gc.collect()))
            z = y + 1
            del y
            seen.append(z.sum().item())
            w = [z * k for k in range(3)]
        return seen, w, z

    run = dycl.accelerate(program)
    for _ in range(12):
        x = torch.randn(3, 4)
        Collects.died = 0
        seen, w, z = run(x)
        gc.collect()
        died, Collects.died = Collects.died, 0
        expected, parts, last = program(x)
        gc.collect()
        assert died == Collects.died
        assert torch.allclose(z, last) and all(map(torch.allclose, w, parts)) and seen == pytest.approx(expected, 1e-4)


def test_results_that_nobody_holds_are_never_computed():
    @dycl.accelerate
    def program(x):
        y = x.exp()
        del y
        return x

    with torch.no_grad():
        x = torch.ones(3)
        assert program(x) is x
    stats = dycl.stats(program)
    assert stats["recorded"] == 1 and stats["segments"] == 0


def workload():
    linear, norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    @dycl.accelerate
    def program(x, i):
        i %= 105
        a = norm(linear(x)) + x
        v = a[:, 1:]
        a2 = a.view(-1)
        if i % 3 == 0:
            a.mul_(2)
        if i % 5 == 0:
            float(v.sum())
        if i % 7 == 0:
            a2.cos_()
        if i % 11 == 0:
            a.tag = [a]
        if i % 13 == 0:
            try:
                a @ x[:3, :3]
            except RuntimeError:
                pass
        return a.softmax(-1), v, x, torch.erf(a), (a > 0).nonzero()

    return program


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.resident
def test_nothing_grows():
    program, x = workload(), torch.randn(4, 8)
    with torch.no_grad():
        for i in range(2500):
            program(x, i)
        gc.collect()
        objects, references = len(gc.get_objects()), [sys.getrefcount(o)
                                                      for o in (x, torch.Tensor, program, torch.float32, torch.Size,
                                                                type(None))]
        resident = resident_bytes()
        tracemalloc.start()
        # pooled objects that were made before come to be traced: 35 KB in the end, most of it by then
        for i in range(20 * 945):
            program(x, i)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
        for i in range(2 * 945):
            program(x, i)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0] - traced
        tracemalloc.stop()
        for i in range(14000):  # 20,000 and more together
            program(x, i)
        gc.collect()
    grown = [sys.getrefcount(o) - n for o, n in zip((x, torch.Tensor, program, torch.float32, torch.Size, type(None)),
                                                    references)]
    assert all(abs(n) <= 30 for n in grown), grown
    assert abs(len(gc.get_objects()) - objects) < 60, len(gc.get_objects()) - objects
    assert traced < 10000, traced  # bytes in 1890 calls
    assert resident_bytes() - resident < 8 << 20, resident_bytes() - resident


@pytest.mark.resident
def test_changing_shapes_do_not_grow_without_bound():
    program = dycl.accelerate(lambda x: (x.exp() + 1).sum(-1).softmax(0))
    with torch.no_grad():
        for n in range(8400):  # more than the plans that are kept
            program(torch.ones(n % 100 + 1, n // 100 + 1))
        resident = resident_bytes()
        for n in range(8400, 10800):
            x = torch.ones(n % 100 + 1, n // 100 + 1)
            got = program(x)
        torch.testing.assert_close(got, (x.exp() + 1).sum(-1).softmax(0))
    assert resident_bytes() - resident < 8 << 20, resident_bytes() - resident


@pytest.mark.parametrize("named", [False, True])
def test_what_is_saved_by_hand_comes_back_as_the_same_object(named):
    """As checkpointing saves the arguments of what it will run again."""
    from torch._C._autograd import _make_saved_tensor

    @dycl.accelerate
    def program(x):
        y = x * 3
        saved = _make_saved_tensor(y, is_output=False) if named else _make_saved_tensor(y, False)
        return y, saved, y + 1

    with torch.inference_mode():
        dycl.accelerate(lambda x: (x * 2 + 1).exp())(torch.ones(3))  # wrappers that were made in there are used again
    for _ in range(3):
        y, saved, _ = program(torch.ones(3))
        assert saved.unpack() is y and torch.equal(y, torch.full((3,), 3.0)) and not y.is_inference()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("before", [None, lambda z: z.sum().item(), str, torch.isreal, lambda z: z.data_ptr(),
                                    lambda z: z._version, lambda z: z.numpy(force=True), lambda z: torch.fft.fft(z)])
@pytest.mark.parametrize("view", [lambda y: y[0], lambda y: y.t(), lambda y: y.view(-1)[1:], lambda y: y[None].mT])
def test_the_base_of_a_view_is_the_object_that_was_viewed(view, before, grad):
    def program(x):
        y = x.exp() * 2
        z = view(y)
        if before:
            before(z)
        base = z._base
        base.tag = 1
        return base is y, y, z, base, y + z.sum()

    run = dycl.accelerate(program)
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=grad)
        for f in (program, run):
            same, y, z, base, _ = f(x)
            assert same and base is y and z._base is y and y.tag == 1
