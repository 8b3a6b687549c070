"""Modules of the program's own classes, called inside a region: everything that Module.__call__ and Module.__getattr__
let a program see stays.

Each case is a module inside an outer one; what it notes during a call is compared between eager torch and an
accelerated copy."""

import collections
import copy
import gc
import inspect
import random
import sys
import traceback
import types
import warnings
import weakref

import dycl
import pytest
import torch
from torch import nn

NOTES = []


def note(*facts):
    NOTES.append(facts)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.use(self.inner, x)

    def use(self, inner, x):
        return inner(x)


class WithPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x):
        return self.part(x) + 1


CASES = {}


def case(cls):
    CASES[cls.__name__] = cls
    return cls


def frames_above():
    """The frames from the caller's caller up to Outer.use."""
    found = []
    for frame in inspect.stack(0)[2:]:
        found.append((frame.filename, frame.lineno, frame.function, frame.positions, frame.frame.f_code.co_qualname,
                      frame.frame.f_globals["__name__"],
                      frame.frame.f_code.co_firstlineno, frame.frame.f_locals.get("self").__class__))
        if frame.function == "use":
            return found
    raise AssertionError("no frame of Outer.use")


@case
class Stack(Outer):
    class Inner(nn.Module):
        def forward(self, x, y=None, *, z=None):
            note(*frames_above())
            return x + 1

    def use(self, inner, x):
        inner(x)
        inner(x, x)
        inner(x, y=2, z=x)
        inner(z=1, x=x)
        return inner(x, None, **{"z": 3})


@case
class References(Outer):
    class Inner(nn.Module):
        def forward(self, x, t, u=None):
            note(sys.getrefcount(t), sys.getrefcount(u), sys.getrefcount(self))
            alive = [weakref.ref(t), weakref.ref(u)]
            del t, u
            gc.collect()
            note([reference() is not None for reference in alive])
            return x * 2

    def use(self, inner, x):
        class Thing:
            pass

        gone = [Thing(), Thing()]
        references = [weakref.ref(thing) for thing in gone]
        result = inner(x, gone.pop(), u=gone.pop())
        note([reference() for reference in references])
        return result


@case
class Errors(Outer):
    class Inner(nn.Module):
        def forward(self, x, **kwargs):
            if kwargs:
                raise KeyError("inner") from ValueError("cause")
            return x.nonsense

    def use(self, inner, x):
        for kwargs in ({}, {"a": 1}, {"self": 1}, {"a b": 1}):
            try:
                inner(x, **kwargs)
            except Exception:  # noqa: BLE001
                note(traceback.format_exc().replace("torch.", ""))
        for wrong in ((), (x, x)):
            try:
                inner(*wrong)
            except TypeError:
                note(traceback.format_exc())
        return x + 1


@case
class Warns(Outer):
    class Inner(nn.Module):
        def forward(self, x):
            for level in range(1, 6):
                warnings.warn(f"level {level}", stacklevel=level)
            return x + 1

    def use(self, inner, x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = inner(x)
        note(*[(str(w.message), w.filename, w.lineno) for w in caught])
        return result


@case
class Arguments(Outer):
    class Inner(nn.Module):
        def forward(self, *args, **kwargs):
            note(len(args), list(kwargs), type(args), type(kwargs))
            kwargs["new"] = 1
            return args[0] + len(args)

    def use(self, inner, x):
        for count in range(1, 12):
            inner(*[x] * count)
            inner(x, **{f"name{i}": i for i in range(count)})
        given = {"b": 1, "a": 2, "_0": 3, "forward": 4, "class": 5, "following": 6, "é": 7}
        inner(x, **given)
        note(given)
        return inner(x)


@case
class Hooks(Outer):
    class Inner(nn.Module):
        def forward(self, x, **kwargs):
            return x + 1

    def use(self, inner, x):
        inner(x)
        handles = [inner.register_forward_hook(lambda m, a, out: note("forward", m is inner) or out * 2)]
        handles.append(inner.register_forward_pre_hook(lambda m, a, k: note("before", k) or (a, {"q": 1}),
                                                       with_kwargs=True))
        y = inner(x, k=1)
        for handle in handles:
            handle.remove()
        y = y + inner(x, k=1)
        handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: note("everywhere", type(m).__name__))
        y = y + inner(x)
        handle.remove()
        return y + inner(x)


@case
class ForwardReplaced(Outer):
    class Inner(nn.Module):
        def forward(self, x):
            return x + 1

    def use(self, inner, x):
        y = inner(x)
        inner.forward = lambda x, inner=inner: note("own") or x * 3
        y = y + inner(x)
        del inner.forward
        y = y + inner(x)
        before = type(inner).forward
        type(inner).forward = lambda self, x: note("class") or x * 5
        y = y + inner(x)
        type(inner).forward = before
        inner._call_impl = lambda x: note("impl") or x * 7
        y = y + inner(x)
        del inner._call_impl
        inner._compiled_call_impl = lambda x: note("compiled") or x * 11
        y = y + inner(x)
        inner._compiled_call_impl = None
        return y + inner(x)


@case
class CallReplaced(Outer):
    class Inner(nn.Module):
        def forward(self, x):
            return x + 1

        def __call__(self, x):
            note("call")
            return super().__call__(x) * 2

    class Other(nn.Module):
        def forward(self, x):
            return x + 1

    def use(self, inner, x):
        other = self.Other()
        y = inner(x) + other(x)
        before = nn.Module.__call__
        nn.Module.__call__ = lambda self, *args: note("patched", type(self).__name__) or before(self, *args)
        y = y + inner(x) + other(x)
        nn.Module.__call__ = before
        return y + inner(x) + other(x)


@case
class Attributes(Outer):
    class Inner(nn.Module):
        word = "class"

        def __init__(self):
            super().__init__()
            self.part = nn.Identity()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("count", torch.zeros(3))
            self.register_parameter("nothing", None)
            self._modules["word"] = nn.Identity()
            self.plain = [1]

        @property
        def broken(self):
            note("property")
            return self.missing_inside

        @classmethod
        def maker(cls):
            return cls.__name__

        @staticmethod
        def static():
            return "static"

        def forward(self, x):
            note(self.part is self._modules["part"], self.weight is self._parameters["weight"],
                 self.count is self._buffers["count"], self.nothing, self.word)
            note(self.plain, self.maker(), self.static(), self.forward.__func__ is type(self).forward, self.training)
            note(getattr(self, "absent", "default"), hasattr(self, "absent"))
            for name in ("absent", "broken"):
                try:
                    getattr(self, name)
                except AttributeError:
                    note(traceback.format_exc())
            self.later = nn.ReLU()
            self.part = nn.Tanh()
            note(type(self.part).__name__, type(self.later).__name__)
            del self.part
            note(hasattr(self, "part"))
            self._modules["weight"] = self.later  # parameters go first
            note(type(self.weight).__name__)
            self.__dict__["weight"] = "own"
            note(self.weight)
            del self.__dict__["weight"], self._modules["weight"]
            self.part = nn.Identity()
            return x + self.weight.sum()


@case
class AttributesAgain(Outer):
    """What was found once is asked for after each of many changes: of the tables, the object and its class."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(4):
                setattr(self, f"n{i}", nn.Identity())
            self.n4 = nn.Parameter(torch.ones(1))
            self.register_buffer("n5", torch.ones(1))

        def forward(self, x):
            return x + 1

    def use(self, inner, x):
        kind = type(inner)
        names = [f"n{i}" for i in range(7)]
        tables = ["_parameters", "_buffers", "_modules"]
        rng, kept = random.Random(5), dict(vars(inner))
        kept = {table: dict(kept[table]) for table in tables}

        def put(value):
            inner._modules[rng.choice(names)] = value

        changes = [
            lambda: put(nn.ReLU()), lambda: setattr(inner, rng.choice(names[:4]), nn.Tanh()),
            lambda: getattr(inner, rng.choice(tables)).pop(rng.choice(names), None),
            lambda: inner._parameters.update({rng.choice(names): nn.Parameter(torch.zeros(1))}),
            lambda: inner._buffers.update({rng.choice(names): None}), lambda: inner._buffers.clear(),
            lambda: inner.__dict__.update({rng.choice(names): "own"}),
            lambda: inner.__dict__.pop(rng.choice(names), None),
            lambda: inner.__dict__.update({t: {**kept[t]} for t in (rng.choice(tables),)}),
            lambda: setattr(inner, "other", rng.random()), lambda: inner.float(),
            lambda: setattr(kind, rng.choice(names), rng.choice(["class", property(lambda self: "property")])),
            lambda: [delattr(kind, n) for n in names if n in vars(kind)],
            lambda: inner.__dict__.update({t: collections.OrderedDict(kept[t]) for t in tables}),
            lambda: inner.__dict__.pop("_buffers", None),
            lambda: setattr(inner, "__class__", rng.choice([kind, type("Other", (kind,), {"n1": "other"})])),
        ]
        try:
            for _ in range(400):
                for name in rng.choices(names, k=4) * 2:
                    found = getattr(inner, name, "none")
                    note(name, type(found).__name__, found if isinstance(found, str) else None,
                         any(found is v for t in tables for v in vars(inner).get(t, {}).values()))
                rng.choice(changes)()
                if "_buffers" not in vars(inner) or rng.random() < 0.1:
                    inner.__class__ = kind
                    vars(inner).update({table: dict(values) for table, values in kept.items()})
        finally:
            inner.__class__ = kind
            [delattr(kind, n) for n in names if n in vars(kind)]
            [vars(inner).pop(n, None) for n in names]
            vars(inner).update(kept)
        return inner(x)


@case
class ModulesComeAndGo(Outer):
    """At the address of one that is gone, with names that are gone; and more names than are remembered."""

    class Inner(nn.Module):
        def forward(self, x):
            for i in range(50):
                name = "n" + str(i % 3)
                part = type(self)()
                setattr(part, name, nn.Identity() if i % 2 else nn.Tanh())
                note([type(getattr(part, name)).__name__ for _ in range(3)])
                del part
            parts = [nn.Identity() for _ in range(7)]
            names, several = [f"n{i}" for i in range(5000)], [type(self)() for _ in range(2)]
            for k, module in enumerate(several):
                module._modules.update({name: parts[(i + k) % 7] for i, name in enumerate(names)})
            for _ in range(2):
                note([parts.index(getattr(module, name)) for name in names for module in several])
            return x + 1


@case
class OwnLookup(Outer):
    class Inner(WithPart):
        def __getattr__(self, name):
            note("getattr", name)
            return super().__getattr__(name)

    class Watching(nn.Module):
        def __getattribute__(self, name):
            if name != "__class__":
                note("getattribute", name)
            return super().__getattribute__(name)

        def forward(self, x):
            return x + 1

    def use(self, inner, x):
        return inner(x) + self.Watching()(x)


@case
class StrangeTables(Outer):
    class Table(collections.OrderedDict):
        def __contains__(self, name):
            note("contains", name)
            return super().__contains__(name)

    class Inner(WithPart):
        def __init__(self):
            super().__init__()
            self.__dict__["_buffers"] = StrangeTables.Table()


@case
class GetattrLater(Outer):
    class Inner(WithPart):
        pass

    def use(self, inner, x):
        y = inner(x)
        kind = type(inner)
        kind.__getattr__ = lambda self, name: note("late", name) or nn.Module.__getattr__(self, name)
        y = y + inner(x)
        del kind.__getattr__
        return y + inner(x)


@case
class Traced(Outer):
    class Inner(WithPart):
        pass

    def use(self, inner, x):
        y = inner(x)
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: event in ("call", "return")
                       and note(event, frame.f_code.co_qualname))
        try:
            y = y + inner(x)
        finally:
            sys.setprofile(before)
        return y + inner(x)


@case
class Recursion(Outer):
    class Inner(nn.Module):
        def forward(self, x, depth=0):
            try:
                return self(x, depth=depth + 1)
            except RecursionError:  # 19 to 23 levels; which of them hangs on the runner's frames in C, and a region
                return x + min(depth, 15)  # needs one or two fewer of these

    def use(self, inner, x):
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(len(inspect.stack(0)) + 100)
        try:
            y = inner(x)
        finally:
            sys.setrecursionlimit(before)
        return y


@case
class Generators(Outer):
    class Inner(nn.Module):
        def forward(self, x):
            for i in range(3):
                yield x + i

    def use(self, inner, x):
        return sum(inner(x))


@case
class Containers(Outer):
    class Inner(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.ModuleList([nn.Tanh()])[0], nn.Sequential())

    def use(self, inner, x):
        note(len(inner), str(inner[0][1]), [name for name, _ in inner.named_modules()])
        return inner(x)


@case
class NoModule(Outer):
    class Inner(nn.Module):
        def forward(self, x):
            return x + 1

    def use(self, inner, x):
        empty = object.__new__(type(inner))  # Module.__init__ was not called
        try:
            empty(x)
        except AttributeError:
            note(traceback.format_exc())
        return inner(x)


def call(model, x):
    """The notes and results of three calls."""
    NOTES.clear()
    results = []
    with torch.no_grad():
        for _ in range(3):
            results.append(model(x))
    return list(NOTES), results


@pytest.mark.parametrize("name", CASES)
def test_the_program_sees_what_it_sees_in_eager(name):
    torch.manual_seed(0)
    kind = CASES[name]
    eager = kind(kind.Inner())
    model = dycl.accelerate(copy.deepcopy(eager))
    x = torch.randn(2, 3)
    notes, results = call(eager, x)
    seen, got = call(model, x)
    assert seen == notes
    torch.testing.assert_close(got, results, rtol=1e-6, atol=1e-6)  # one product of three elements at most
    assert dycl.stats(model)["calls"] == 3 and dycl.stats(model)["recorded"] > 0


class Whose(nn.Module):
    def forward(self, x):
        self.code = sys._getframe(1).f_code
        return x + 1


def is_stand_in(code):
    assert code.co_qualname == "Module._call_impl"
    return code is not nn.Module._call_impl.__code__


def test_calls_do_pass_by_torch():
    """Without this the cases above could not fail."""
    model = dycl.accelerate(Outer(Whose()))
    with torch.no_grad():
        model(torch.ones(2))
    assert is_stand_in(model.inner.code)
    inner = Whose()
    with torch.no_grad():
        dycl.accelerate(lambda x: inner(x))(torch.ones(2))
    assert is_stand_in(inner.code)
    Outer(inner)(torch.ones(2))
    assert not is_stand_in(inner.code)  # outside a region nothing changes


def test_also_after_somebody_patched_every_module():
    before = nn.Module.__call__
    nn.Module.__call__ = lambda self, x: before(self, x)
    nn.Module.__call__ = before
    test_calls_do_pass_by_torch()


def test_also_where_every_module_is_accelerated():
    with dycl.accelerate_all(), torch.no_grad():
        model = Outer(Whose())
        model(torch.ones(2))
    assert is_stand_in(model.inner.code)


def test_another_torch_is_called_as_it_calls(monkeypatch):
    """Where torch's methods are not what the stand-ins imitate, there are none."""
    from dycl import _frames

    _frames._place.cache_clear()
    monkeypatch.setitem(_frames._RETURNS, "_call_impl", "something_else(*args)")
    assert not _frames.find()
    monkeypatch.undo()
    _frames._place.cache_clear()
    assert _frames.find()
    assert isinstance(_frames.make(2, ("a",)), types.FunctionType)
    assert _frames.make(1, ("a b",)) is None and _frames.make(1, ("self",)) is None \
        and _frames.make(1, ("class",)) is None
