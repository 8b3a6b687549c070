"""The public interface: what accelerate takes, disabling, statistics, explanations, import orders, and what happens
where dycl cannot work."""

import asyncio
import inspect
import os
import sys
import textwrap

import dycl
import started
import pytest
import torch
from suite import without_training  # noqa: F401 (a fixture)
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python(code, **environment):
    """Runs code in a fresh interpreter; its output."""
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = started.run(["-c", textwrap.dedent(code)], env={**os.environ, "PYTHONPATH": path, **environment},
                       timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() + done.stderr.strip()


@pytest.mark.parametrize("target", [3, None, "model", torch.ones(2), [], nn.Linear, int])
def test_what_accelerate_rejects(target):
    with pytest.raises(TypeError, match=f"takes a torch.nn.Module or a function, not {type(target).__name__}"):
        dycl.accelerate(target)


def test_functions_methods_and_decorators():
    @dycl.accelerate
    def scaled(x, by=2, *, plus=0):
        """Scales."""
        return x * by + plus

    class Model:
        @dycl.accelerate
        def run(self, x):
            return x + self.bias

        @staticmethod
        @dycl.accelerate
        def static(x):
            return x - 1

        bias = 3

    import functools
    import inspect

    x = torch.ones(2)
    with torch.no_grad():
        assert torch.equal(scaled(x, 3, plus=1), x * 4) and torch.equal(scaled(x, by=5), x * 5)
        model = Model()
        assert torch.equal(model.run(x), x + 3) and torch.equal(Model.static(x), x - 1)
        bound = dycl.accelerate(model.run)
        assert torch.equal(bound(x), x + 3)
        partial = dycl.accelerate(functools.partial(scaled, by=7))
        assert torch.equal(partial(x), x * 7)
        assert torch.equal(dycl.accelerate(torch.exp)(x), x.exp())
    assert scaled.__name__ == "scaled" and scaled.__doc__ == "Scales." \
        and str(inspect.signature(scaled)) == "(x, by=2, *, plus=0)"
    assert dycl.accelerate(scaled) is scaled and dycl.stats(scaled)["recorded"] >= 4 \
        and dycl.stats(Model.run)["calls"] + dycl.stats(Model.run)["plain_calls"] == 2
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        scaled()


@dycl.accelerate
def at_module_level(x):
    return x * 2


def test_functions_are_copied_and_pickled_like_functions():
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    assert copy.deepcopy([at_module_level])[0] is at_module_level and copy.copy(at_module_level) is at_module_level


def test_modules_stay_what_they_are():
    model = nn.Sequential(nn.Linear(2, 2))
    before = dict(model.__dict__)
    assert dycl.accelerate(model) is model and dycl.accelerate(model) is model
    assert set(model.__dict__) - set(before) <= {"_compiled_call_impl"} and "torch.Tensor" not in repr(model)


def test_disable():
    f = dycl.accelerate(lambda x: x + 1)
    x = torch.ones(2)
    with torch.no_grad():
        with dycl.disable():
            with dycl.disable():
                f(x)
            f(x)
        f(x)
        assert (dycl.stats(f)["plain_disabled"], dycl.stats(f)["calls"]) == (2, 1)
        dycl.disable()
        try:
            f(x)
        finally:
            dycl.enable()
        f(x)
    assert (dycl.stats(f)["plain_disabled"], dycl.stats(f)["calls"]) == (3, 2)


@pytest.mark.parametrize("value, recorded", [("1", 0), ("0", 1), ("", 1)])
def test_disable_by_environment(value, recorded):
    code = """
        import dycl, torch
        f = dycl.accelerate(lambda x: x + 1)
        with torch.no_grad(): f(torch.ones(2))
        print(dycl.stats(f)["recorded"])
    """
    assert python(code, DYCL_DISABLE=value) == str(recorded)


def test_stats_are_documented():
    f = dycl.accelerate(lambda x: x + 1)
    stats = dycl.stats(f)
    for key in stats:
        assert f"``{key}``" in dycl.stats.__doc__, key
    for target in (3, lambda x: x, nn.Linear(2, 2)):
        with pytest.raises(TypeError, match="not accelerated"):
            dycl.stats(target)
        with pytest.raises(TypeError, match="not accelerated"):
            dycl.explain(target)


def test_explain():
    @dycl.accelerate
    def program(x):
        y = (x @ x).relu()
        if y.sum() > 0:
            y = torch.linalg.inv(y + torch.eye(4) * 9)
        return y.softmax(-1)

    with torch.no_grad():
        for _ in range(3):
            program(torch.ones(4, 4))
        dycl.explain(program)
        program(torch.ones(4, 4))
    text = dycl.explain(program)
    assert "relu" in text and "softmax" in text and "segment 1" in text and "Python needs the value" in text
    line = program.__wrapped__.__code__.co_firstlineno + 4
    assert f"{__file__}:{line}" in text and "operator not represented" in text and "inv" in text
    assert "4 calls recorded" in text


def test_gradients_are_told(without_training):  # noqa: F811
    model = dycl.accelerate(nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    assert dycl.stats(model)["plain_grad"] == 1 and "gradients 1" in dycl.explain(model) \
        and model.weight.grad is not None


@pytest.mark.parametrize("imports", ["import dycl, torch", "import torch, dycl",
                                     "import dycl; f0 = dycl.accelerate; import torch"])
def test_import_order(imports):
    code = f"""
        {imports}
        f = dycl.accelerate(lambda x: x + 1)
        with torch.no_grad(): print(f(torch.ones(2)).tolist(), dycl.stats(f)["recorded"])
    """
    assert python(code) == "[2.0, 2.0] 1"


def test_importing_dycl_does_not_import_torch():
    assert python("import dycl, sys; print('torch' in sys.modules, dycl.info()['onednn'] != '')") == "False True"


def test_without_torch():
    code = """
        import sys
        sys.modules["torch"] = None
        import dycl
        try:
            dycl.accelerate(lambda: 0)
        except ImportError as error:
            print(error)
    """
    assert python(code) == "dycl.accelerate needs torch: pip install torch"


def test_a_torch_that_lacks_something():
    code = """
        import torch, warnings
        del torch._C._swap_tensor_impl
        import dycl
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = dycl.accelerate(torch.nn.Linear(2, 2))
            f = dycl.accelerate(lambda x: x + 1)
        with torch.no_grad(): print(model(torch.ones(1, 2)).shape, f(torch.ones(2)).tolist())
        print(len(caught), caught[0].category.__name__, caught[0].message)
        print(dycl.stats(f)["calls"], dycl.explain(model))
    """
    text = python(code)
    assert "torch.Size([1, 2]) [2.0, 2.0]" in text \
        and "1 RuntimeWarning dycl does not accelerate here, programs run in torch" in text
    assert "_swap_tensor_impl" in text and "\n0 dycl does not accelerate here" in text


def test_setup_in_inference_mode():
    code = """
        import torch, dycl
        with torch.inference_mode():
            f = dycl.accelerate(lambda x: (x + 1) * 2)
            f(torch.ones(3))
        print(dycl.stats(f)["recorded"])
    """
    assert python(code, PYTHONWARNINGS="error", DYCL_CHOOSE="0") == "2"


def test_explain_shows_where_python_and_the_graph_meet():
    def program(x, flag):
        y = torch.tanh(x @ x) * 0.25 + 1.5
        if y.sum() > flag:  # a fetch
            return y * 2
        return (y - 3, y > 0)

    target = dycl.accelerate(program)
    for i in range(8):
        target(torch.ones(4, 4), 1000 * (i % 2))
    text = dycl.explain(target)
    line = program.__code__.co_firstlineno + 2
    assert "8 calls recorded" in text and "16 segments run; 8 fetches (a value was needed), 1 case selects" in text
    first, then, other = (part.splitlines() for part in text.split("\nsegment ")[1:])
    assert first[1].startswith("  feeds: 1 tensor (f32[4,4]), 3 numbers; outputs: 2 tensors (f32[4,4], bool[]); ended "
                               "by: Python needs the value"), first
    assert first[1].endswith(f", at {__file__}:{line}"), first
    (select,) = (row for row in first if "case select" in row)
    assert select.startswith("  case select, continues with segment ") and sorted(select.split()[-2:]) == ["2", "3"], \
        select
    assert then[1].startswith("  feeds: 1 tensor (f32[4,4]), 1 number; outputs: 1 tensor (f32[4,4]); ended by: end of "
                              "the accelerated call"), then
    assert "bool[4,4]" in other[1] and "outputs: 2 tensors" in other[1], other


def test_what_kind_of_function_it_is():
    """Frameworks ask `inspect` whether a call makes a coroutine or a generator."""
    def function(x, y=2, *, z=3):
        return x * y + z + offset

    async def coroutine(x):
        return x * 2

    def generator(x):
        yield x * 2

    async def asynchronous_generator(x):
        yield x * 2

    offset = 0
    questions = [inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction,
                 asyncio.iscoroutinefunction]
    for original in (function, coroutine, generator, asynchronous_generator):
        ours = dycl.accelerate(original)
        assert [ask(ours) for ask in questions] == [ask(original) for ask in questions]
        for name in ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__"):
            assert getattr(ours, name) is getattr(original, name) or name == "__closure__"
    assert asyncio.run(dycl.accelerate(coroutine)(torch.ones(2))).tolist() == [2, 2]
    ours = dycl.accelerate(function)
    ours.__defaults__ = (5,)
    assert ours(torch.ones(1)).item() == 8 == function(torch.ones(1)).item()
    assert not hasattr(dycl.accelerate(nn.ReLU())._compiled_call_impl, "__code__")
