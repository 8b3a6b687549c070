"""What differs between versions of CPython, and the ways through the public API that a new one takes.

csrc/py/cpython, docs/pythons.md
"""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest
import torch
from torch import nn

import dycl
import started

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "csrc" / "py"
monitored = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with 3.12")


def run(*command, **environment):
    return started.run(command, cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT), **environment), timeout=900)


# ---------------------------------------------------------------------- one folder


def test_internals_are_in_one_folder():
    """A new Python touches compat.h, and nothing outside the folder asks for a version or reaches inside."""
    inside = re.compile(
        r"\b(_Py[A-Z]\w*|pycore_\w+|ob_digit|ma_version_tag|ma_values|tp_version_tag|cframe|current_frame|c_tracefunc"
        r"|c_profilefunc|PY_M\w+_VERSION|PY_VERSION_HEX|PyObject_GET_WEAKREFS_LISTPTR|Py_BUILD_CORE)\b"
    )
    wrong = []
    for path in sorted((ROOT / "csrc").rglob("*.[ch]")):
        if path.parent.name != "cpython":
            wrong += [f"{path.relative_to(ROOT)}: {found.group()}" for found in inside.finditer(path.read_text())]
    assert not wrong


def headers():
    import numpy

    return [
        "-std=c11",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{ROOT / 'csrc'}",
        "-isystem",
        sysconfig.get_path("include"),
        "-isystem",
        numpy.get_include(),
    ]


def test_builds_without_any_internal(tmp_path):
    """As on a Python that is not known yet."""
    together = tmp_path / "all.c"
    together.write_text(
        "".join(f'#include "py/cpython/{path.name}"\n' for path in sorted((PYTHON / "cpython").glob("*.[ch]")))
        + '#include "py/intercept/shortcut.c"\n'
    )
    for defines in ([], ["-DDYCL_PUBLIC_API"]):
        result = subprocess.run(["gcc", *headers(), *defines, str(together)], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    seen = subprocess.run(
        [
            "gcc",
            *[flag for flag in headers() if flag not in ("-fsyntax-only", "-Werror")],
            "-DDYCL_PUBLIC_API",
            "-E",
            "-P",
            str(together),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    ours = seen[seen.index("extern int dycl_public_api;") :]
    ours = "".join(
        line for line in ours.splitlines(True) if re.match(r"(static|int|uint64_t|PyObject|void|const| )", line)
    )
    assert not re.search(
        r"ma_version_tag|tp_version_tag|ob_digit|current_frame|->c_tracefunc|_PyType_Lookup\(|_PyObject_GetDictPtr\(",
        ours,
    )


@pytest.mark.parametrize("file", ["test_composite.py", "test_shortcut.py", "test_hazards_modules.py"])
def test_public_ways(file):
    result = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/py/{file}", DYCL_PUBLIC_API="1")
    assert result.returncode == 0, result.stdout[-3000:]


# ---------------------------------------------------------------------- free-threaded builds


def test_free_threaded_builds_are_refused():
    code = (
        "import sysconfig, sys\nreal = sysconfig.get_config_var\n"
        "sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else real(name)\n"
        "sys.argv = ['setup.py', '--quiet', 'lint']\n"
        "import runpy; runpy.run_path('setup.py', run_name='__main__')"
    )
    result = run("-c", code)
    assert result.returncode != 0 and "free-threaded" in result.stderr


# ---------------------------------------------------------------------- instances that change


class Slotless(nn.Module):
    """Its attributes are set as the interpreter likes best: in 3.13 they lie in the object, unnoticed by its dict."""

    __setattr__ = object.__setattr__

    def __init__(self):
        super().__init__()
        self.scale = 1

    def forward(self, x):
        return x * self.scale


class Holder(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def replace_forward(module, forward):
    module.forward = forward


def put_hooks(module, hooks):
    module._forward_hooks = hooks


def call_itself(module, implementation):
    module._call_impl = implementation


@pytest.mark.parametrize("before", [0, 3, 40])
def test_attributes_set_beside_the_dict(before):
    """What is read of a module once is read again, however its attributes were set."""
    seen = []

    def hook(module, args, result):
        seen.append("hook")
        return result + 100

    def program(holder, x):
        found = []
        for _ in range(before):
            found.append(holder(x))
        for n in range(40):
            replace_forward(holder.inner, lambda x, n=n: x + n)
            found.append(holder(x))
        del holder.inner.forward
        found.append(holder(x))
        hooks = holder.inner._forward_hooks
        put_hooks(holder.inner, {1: hook})
        found.append(holder(x))
        put_hooks(holder.inner, hooks)
        found.append(holder(x))
        call_itself(holder.inner, lambda *args, **kwargs: x - 1)
        found.append(holder(x))
        del holder.inner._call_impl
        found.append(holder(x))
        return found

    with torch.no_grad():
        x = torch.ones(2)
        want = program(Holder(Slotless()), x)
        got = program(dycl.accelerate(Holder(Slotless())), x)
    assert len(seen) == 2
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_stock_modules_configured_beside_the_dict():
    def configure(module, name, value):
        object.__setattr__(module, name, value)

    def program(model, x):
        found = []
        for n in range(30):
            found.append(model(x))
            configure(model[0], "eps", 10.0 ** -(n % 3))
            configure(model[1], "approximate", "tanh" if n % 2 else "none")
        return found

    with torch.no_grad():
        x = torch.randn(4, 8)
        models = [nn.Sequential(nn.LayerNorm(8), nn.GELU()) for _ in range(2)]
        want = program(models[0], x)
        got = program(dycl.accelerate(models[1]), x)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_dict_of_a_module_stays_the_same():
    """Items, order and identity, also for an iterator that is under way."""

    class Inner(nn.Module):
        def forward(self, x):
            return x + 1

    inner = Inner()
    for n in range(10):
        setattr(inner, f"a{n}", n)
    attributes, want = inner.__dict__, list(inner.__dict__.items())
    model = dycl.accelerate(Holder(inner))
    with torch.no_grad():
        found = []
        for name in attributes:
            model(torch.ones(2))
            found.append(name)
    assert found == [name for name, _ in want]
    assert inner.__dict__ is attributes and list(attributes.items()) == want
    inner.a3 = "new"
    assert attributes["a3"] == "new"


def test_immortal_arguments():
    """Nobody counts references to what never dies, and others get theirs back."""

    class Inner(nn.Module):
        def forward(self, x, *constants, **named):
            return x + constants[1] + named["n"]

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            for _ in range(50):
                x = self.inner(x, None, 1, True, "text", (), n=2, flag=False)
            return x

    constants = (None, 1, 2, True, False, "text", (), "n")
    model = dycl.accelerate(Outer())
    with torch.no_grad():
        model(torch.ones(2))
        before = [sys.getrefcount(o) for o in constants]
        for _ in range(20):
            model(torch.ones(2))
        after = [sys.getrefcount(o) for o in constants]
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))


# ---------------------------------------------------------------------- the specialising interpreter


def test_methods_that_the_interpreter_has_specialised():
    """A call site that took a method from the class a hundred times sees that the instance is accelerated now."""

    class Generates(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x)

        @torch.no_grad()
        def generate(self, x):
            for _ in range(3):
                x = self(x).tanh()
            return x

    other = Generates()
    other._compiled_call_impl = (
        None  # a name that instances of this class are known to have: accelerating one is nothing new
    )
    model, x = Generates(), torch.randn(2, 4)

    def use(model, times):
        for _ in range(times):
            y = model.generate(x)
        return y

    want = use(model, 100)
    dycl.accelerate(model)
    got = use(model, 5)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert dycl.stats(model)["calls"] == 5  # whole calls of generate, not of what it calls


# ---------------------------------------------------------------------- sys.monitoring


class Part(nn.Module):
    def forward(self, x):
        return x + 1


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(self.part(x)).relu()


EVERYWHERE = """
import sys, torch
from torch import nn
import dycl
sys.path.insert(0, "tests/py")
from test_pythons import Whole, Part

monitoring, log, TOOL = sys.monitoring, [], 3
events = monitoring.events
local = nn.Module._call_impl.__code__ if sys.argv[1] == "local" else None

def hear(event, code, place, *rest):
    log.append((event, code.co_qualname, str(place) if event == events.LINE else ""))

def begin():
    monitoring.use_tool_id(TOOL, "test")
    for event in (events.PY_START, events.PY_RETURN, events.LINE):
        monitoring.register_callback(TOOL, event, lambda *told, event=event: hear(event, *told))
    if local:
        monitoring.set_local_events(TOOL, local, events.PY_START | events.PY_RETURN)
    else:
        monitoring.set_events(TOOL, events.PY_START | events.PY_RETURN | events.LINE)

def end():
    if local:
        monitoring.set_local_events(TOOL, local, 0)
    else:
        monitoring.set_events(TOOL, 0)
    monitoring.free_tool_id(TOOL)

def heard(model, x):
    log.clear()
    y = model(x)
    found = [row for row in log if "Module" in row[1] or "Whole" in row[1] or "Part" in row[1] or "Linear" in row[1]]
    return y, found

torch.manual_seed(0)
plain, x = Whole(), torch.randn(2, 2)
model = Whole()
model.load_state_dict(plain.state_dict())
with torch.no_grad():
    if sys.argv[2] == "before":
        begin()
    dycl.accelerate(model)
    for _ in range(3):
        model(x)
    if sys.argv[2] != "before":
        begin()
    for _ in range(3):
        want, eager = heard(plain, x)
        got, ours = heard(model, x)
        torch.testing.assert_close(got, want)
        # The outermost call goes through _compiled_call_impl: another line there, the frame is torch's all the same.
        drop = lambda rows: [row for row in rows if not (row[1] == "Module._wrapped_call_impl" and row[2])]
        assert drop(ours) == drop(eager) and len(eager) > 2, (ours, eager)
    end()
    if not local:
        before = dycl.stats(model)["recorded"]
        model(x)
        assert dycl.stats(model)["recorded"] > before
print("heard", len(eager))
"""


@monitored
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["global", "local"])
def test_tools_of_sys_monitoring_hear_the_same(kind, when):
    result = run("-c", EVERYWHERE, kind, when)
    assert result.returncode == 0 and "heard" in result.stdout, result.stdout[-1000:] + result.stderr[-3000:]
