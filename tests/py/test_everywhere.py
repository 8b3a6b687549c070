"""dycl.accelerate_all: every outermost module call, and nothing that a program can notice beside its speed."""

import copy
import gc
import inspect
import os
import pickle
import sys
import weakref

import dycl
import started
import pytest
import torch
from torch import nn

from suite import without_training  # noqa: F401 (a fixture)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def everywhere():
    assert nn.Module._compiled_call_impl is None
    with dycl.accelerate_all() as handle:
        yield handle
    assert nn.Module._compiled_call_impl is None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.rest = nn.Sequential(nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))

    def forward(self, x, scale: float = 2.0):
        return self.rest(self.first(x) * scale)


def net():
    torch.manual_seed(3)
    return Net().eval()


def expected(model, *args, **kwargs):
    with dycl.disable():
        return model(*args, **kwargs)


X = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))


def calls(model):
    return dycl.stats(model)["calls"]


def test_only_the_outermost_module_is_a_region(everywhere):
    model = net()
    with torch.no_grad():
        want = expected(model, X, scale=3.0)
        for _ in range(3):
            torch.testing.assert_close(model(X, scale=3.0), want)
    assert calls(model) == 3 and dycl.stats(model)["recorded"] == 15 and dycl.stats(model)["plain_disabled"] == 1
    for inner in (model.first, model.rest, model.rest[0]):
        with pytest.raises(TypeError, match="not accelerated"):
            dycl.stats(inner)
    with torch.no_grad():
        model.rest(torch.randn(2, 8))  # a part that is called by itself
    assert calls(model.rest) == 1


def test_modules_made_before_and_after_and_when_it_ends():
    before = net()
    handle = dycl.accelerate_all()
    after = net()
    with torch.no_grad():
        want = before(X)
        torch.testing.assert_close(after(X), want)
        assert calls(before) == calls(after) == 1
        second = dycl.accelerate_all()
        handle.remove()
        handle.remove()  # a second time is nothing
        torch.testing.assert_close(after(X), want)
        assert calls(after) == 2
        second.remove()
        torch.testing.assert_close(after(X), want)
        assert calls(after) == 2
        with dycl.accelerate_all(), dycl.disable():
            after(X)
        assert calls(after) == 2


def test_last_call(everywhere):
    model, function = net(), dycl.accelerate(lambda x: x.exp() + 1)
    with torch.no_grad():
        model(X)
        assert dycl.stats() == dycl.stats(model) and "LayerNorm" not in dycl.explain() \
            and dycl.explain() == dycl.explain(model)
        function(X)
        assert dycl.stats() == dycl.stats(function)
    reference = weakref.ref(function)
    del function
    assert reference() is None  # the last call does not keep it
    with pytest.raises(LookupError, match="gone"):
        dycl.stats()


def test_a_module_keeps_its_looks(everywhere):
    model = net()
    names, state, attributes = list(model.__dict__), list(model.state_dict()), dir(model)
    with torch.no_grad():
        want = model(X)
        assert list(model.__dict__) == names and list(model.state_dict()) == state and dir(model) == attributes
        assert inspect.signature(model.forward) == inspect.signature(Net().forward) \
            and model.__call__.__func__ is nn.Module.__call__
        for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(other(X), want)
            assert calls(other) == 1
        fresh = Net().eval()
        fresh.load_state_dict(model.state_dict())
        torch.testing.assert_close(fresh(X), want)
    assert nn.Module._compiled_call_impl is None  # of the class, as ever


def test_own_call_methods(everywhere):
    class Without(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def __call__(self, x):
            return self.inner(x) + 1

    class With(Net):
        def __call__(self, x):
            return super().__call__(x) - 1

    with torch.no_grad():
        model = Without()
        torch.testing.assert_close(model(X), expected(model, X))
        assert calls(model.inner) == 1
        with pytest.raises(TypeError):
            dycl.stats(model)
        torch.manual_seed(3)
        model = With().eval()
        torch.testing.assert_close(model(X), expected(model, X))
        assert calls(model) == 1


def test_own_way_of_a_module_goes_first(everywhere):
    model = dycl.accelerate(net())
    with torch.no_grad():
        for _ in range(2):
            model(X)
        assert calls(model) == 2 and "_compiled_call_impl" in vars(model)
        torch._dynamo.reset()
        compiled = net()
        compiled.compile(backend="eager")
        torch.testing.assert_close(compiled(X), model(X))
        with pytest.raises(TypeError):
            dycl.stats(compiled)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("how", ["jit.trace", "jit.script", "fx", "fx nested", "compile", "compile fullgraph", "export",
                                 "export nonstrict", "make_fx"])
def test_what_looks_into_modules(how, warm, everywhere):
    model = net().requires_grad_(False)
    with torch.no_grad():
        want = expected(model, X)
        if warm:
            model(X)
        if how == "jit.trace":
            got = torch.jit.trace(model, X)
            assert "linear" in str(got.inlined_graph)
        elif how == "jit.script":
            got = torch.jit.script(model)
        elif how.startswith("fx"):
            traced = nn.Sequential(model, nn.ReLU()) if how == "fx nested" else model
            got = torch.fx.symbolic_trace(traced)
            want = want.relu() if how == "fx nested" else want
            everywhere.remove()
            assert str(got.graph) == str(torch.fx.symbolic_trace(traced).graph)
            everywhere = dycl.accelerate_all()
        elif how.startswith("export"):
            got = torch.export.export(model, (X,), strict=how == "export").module()
        elif how == "make_fx":
            from torch.fx.experimental.proxy_tensor import make_fx

            got = make_fx(model)(X)
            assert "addmm" in str(got.graph)
        else:
            torch._dynamo.reset()
            got = torch.compile(model, backend="eager", fullgraph=how.endswith("fullgraph"))
        for _ in range(3):
            result = got(X)
            torch.testing.assert_close(result, want)
            assert type(result) is torch.Tensor
        if how in ("jit.trace", "jit.script", "compile", "compile fullgraph"):
            with pytest.raises(TypeError, match="not accelerated"):  # these run by themselves
                dycl.stats(got)
        before = calls(model) if warm else 0  # jit.trace calls the model again by itself, to check
        torch.testing.assert_close(model(X), expected(model, X))
    assert calls(model) > before
    everywhere.remove()


@pytest.mark.filterwarnings("ignore")
def test_compiled_function_that_calls_modules(everywhere):
    torch._dynamo.reset()
    model = net()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    f = torch.compile(lambda x: model(x + 1) - 1, backend=backend, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(f(X), expected(model, X + 1) - 1)
    assert len(graphs) == 1 and len(graphs[0].graph.nodes) > 5


@pytest.fixture(params=["in torch", "recorded"])
def training(request):
    """Whether calls that need gradients are."""
    if request.param == "in torch":
        request.getfixturevalue("without_training")
    return request.param == "recorded"


def test_training_and_frozen_parts(everywhere, training):
    def train():
        torch.manual_seed(0)
        head, body = nn.Linear(3, 2), net()

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.head, self.body = head, body

            def forward(self, x):
                with torch.no_grad():
                    features = self.body(x)
                return self.head(features)

        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            optimizer.step()
        return loss.detach(), [p.detach().clone() for p in model.parameters()], model

    loss, parameters, model = train()
    if training:
        assert calls(model) == 4 and dycl.stats(model)["plain_grad"] == 0
    else:
        assert dycl.stats(model)["plain_grad"] == 4 and calls(model.body) == 4
    with pytest.raises(TypeError):
        dycl.stats(model.head)  # in the state in which the whole was refused, its parts are not asked
    with dycl.disable():
        want, wanted, _ = train()
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(parameters, wanted)


def test_gradients_wherever_the_first_parameter_is(everywhere, without_training):  # noqa: F811
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_parameter("absent", None)
            self.parts = nn.ModuleList([nn.ReLU(), nn.ModuleDict({"x": net()})])

        def forward(self, x):
            return self.parts[1]["x"](x)

    model = Deep()
    model(X).sum().backward()
    assert dycl.stats(model)["plain_grad"] == 1 and all(p.grad is not None for p in model.parameters())
    model.requires_grad_(False)
    model(X)
    assert calls(model) == 1
    looped = nn.Module()
    looped.itself = looped  # parameters() sees it once
    looped.forward = lambda x: x + 1
    assert torch.equal(looped(X), X + 1) and calls(looped) == 1


def test_modules_and_their_sites_die_together(everywhere):
    model = net()
    with torch.no_grad():
        for _ in range(3):
            model(X)
    site = weakref.ref(model._compiled_call_impl)
    dead = weakref.ref(model), weakref.ref(model.first.weight)
    with torch.no_grad():
        net()(X)  # the last call keeps its site
    del model
    assert all(reference() is None for reference in dead)
    assert site() is None


def test_a_module_that_dies_in_its_own_call(everywhere):
    class Last(nn.Module):
        def forward(self, x, holder):
            holder.clear()
            gc.collect()
            return x.exp() + 1

    with torch.no_grad():
        for _ in range(3):
            holder = [Last()]
            torch.testing.assert_close(holder[0](X, holder), X.exp() + 1)


def test_exceptions_pass(everywhere):
    class Fails(nn.Module):
        def forward(self, x):
            y = x + 1
            if y.sum() > -1e9:
                raise KeyError("own")

    model = Fails()
    with torch.no_grad():
        for _ in range(3):
            with pytest.raises(KeyError, match="own") as caught:
                model(X)
            with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
                net()(torch.ones(2, 3))
    assert [entry.name for entry in caught.traceback][-3:] == ["_wrapped_call_impl", "_call_impl", "forward"]


def run(code, **environment):
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = started.run(["-c", code], env={**os.environ, "PYTHONPATH": path, **environment}, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_many_modules_made_and_dropped():
    """No site outlives its module, and of many living ones only so many are kept."""
    code = """
import dycl, torch, os, gc
from torch import nn
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
class Plus(nn.Module):
    def forward(self, x): return x + 1
dycl.accelerate_all()
x = torch.ones(3)
with torch.no_grad():
    for _ in range(3000): Plus()(x)
    before = resident()
    for _ in range(30000): Plus()(x)
    print(resident() - before < 2 << 20, resident() - before)
    alive = [Plus() for _ in range(12000)]
    for _ in range(2):
        for m in alive:
            m(x)
    kept = [m for m in alive if dycl._core.site_of(m) is not None]
    print(len(kept), all(m in kept for m in alive[-4000:]))
    for m in alive: m._buffers
    before = resident()
    for _ in range(4):
        for m in alive: assert float(m(x)[0]) == 2.0
    print(resident() - before < 4 << 20, resident() - before)
    often = alive[0]
    for m in alive:  # what is called all the time is not among those that go
        m(x), often(x)
    print(dycl.stats(often)["calls"] + dycl.stats(often)["plain_calls"] > 12000)
"""
    lines = run(code).splitlines()
    assert lines[0].startswith("True"), lines
    assert lines[1] == "4096 True" and lines[2].startswith("True") and lines[3] == "True", lines


def test_accelerating_before_torch_is_imported():
    code = """
import dycl, sys
handle, other = dycl.accelerate_all(), dycl.accelerate_all()
other.remove()
assert "torch" not in sys.modules and "dycl._core" not in sys.modules
import os
os.environ["OMP_NUM_THREADS"] = "1"
import torch
assert not any(type(f).__module__.startswith("dycl") for f in sys.meta_path)
assert type(torch.__spec__.loader).__name__ == "SourceFileLoader" and "exec_module" not in vars(torch.__spec__.loader)
m = torch.nn.Linear(2, 2)
with torch.no_grad(): m(torch.ones(1, 2))
print(dycl.stats(m)["calls"], torch.get_num_threads())
handle.remove()
print(torch.nn.Module._compiled_call_impl, torch.nn.Module.__dict__["_compiled_call_impl"])
"""
    assert run(code) == "1 1\nNone None"


def test_disabled_by_the_environment():
    code = """
import dycl, torch
dycl.accelerate_all()
m = torch.nn.Linear(2, 2)
with torch.no_grad():
    m(torch.ones(1, 2))
    print(dycl.stats(m)["calls"], dycl.stats(m)["plain_disabled"])
    dycl.enable()
    m(torch.ones(1, 2))
    print(dycl.stats(m)["calls"])
"""
    assert run(code, DYCL_DISABLE="1") == "0 1\n1"


def test_parts_of_what_torch_runs_faster_stay_in_torch():
    code = """
import dycl, torch
from torch import nn
class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()
    def forward(self, x):
        for _ in range(20): x = torch.special.airy_ai(x)  # no step: each ends its segment
        return self.inner(x)  # once: calling modules is what a region makes cheaper
dycl.accelerate_all()
m, x = Slow(), torch.rand(4, 64)
with torch.no_grad():
    for _ in range(300): m(x)
print(dycl.stats(m)["plain_faster"] > 100, dycl._core.site_of(m.inner))
"""
    assert run(code, DYCL_CHOOSE="1") == "True None"
