"""What type checkers are told (dycl/__init__.pyi) is what there is; the decorator with options; how precision may be
named; what accelerated things look like; the command line's own options."""

import ast
import inspect
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import dycl

STUB = ast.parse(pathlib.Path(dycl.__file__).with_name("__init__.pyi").read_text())


def test_the_stub_names_what_there_is():
    found = {node.name: node for node in STUB.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert sorted([*found, "debug"]) == sorted(dycl.__all__)
    assert "from dycl import debug as debug" in map(ast.unparse, STUB.body), "a module, whose types stand in it"
    assert pathlib.Path(dycl.__file__).with_name("py.typed").exists()
    for name, node in found.items():
        there = getattr(dycl, name)
        if isinstance(node, ast.ClassDef):
            methods = {f.name for f in node.body}
            assert all(hasattr(there, m) for m in methods) \
                and {m for m in vars(there) if not m.startswith("_")} <= methods, name
        elif name != "accelerate":
            assert [a.arg for a in node.args.args] == list(inspect.signature(there).parameters), name


def test_the_module_debug_has_types():
    for name in dycl.debug.__all__:
        parameters = inspect.signature(getattr(dycl.debug, name))
        assert all(p.annotation is not p.empty for p in parameters.parameters.values()) and parameters.return_annotation


def test_overloads_take_what_accelerate_takes():
    overloads = [node for node in STUB.body if isinstance(node, ast.FunctionDef) and node.name == "accelerate"]
    there = inspect.signature(dycl.accelerate).parameters
    assert len(overloads) == 4
    for node in overloads:
        assert {a.arg for a in node.args.args} <= {"target"} \
            and [a.arg for a in node.args.kwonlyargs] == [n for n in there if n != "target"]
        assert [ast.literal_eval(d) for d in node.args.kw_defaults] == [there[n].default for n in there
                                                                        if n != "target"]


def test_a_decorator_with_options():
    @dycl.accelerate(pack=False)
    def double(x):
        """Twice."""
        return x * 2

    @dycl.accelerate()
    def plain(x):
        return x * 2

    with torch.no_grad():
        assert double(torch.ones(2)).tolist() == plain(torch.ones(2)).tolist() == [2.0, 2.0]
    assert double.__doc__ == "Twice." and double._options and not plain._options
    model = nn.Linear(2, 2)
    assert dycl.accelerate(pack=False)(model) is model and dycl.stats(model)["calls"] == 0


@pytest.mark.parametrize("precision", ("f32", "float32", torch.float32))
def test_names_of_float32(precision):
    assert dycl.accelerate(lambda x: x, precision=precision)._options == dycl.accelerate(lambda x: x)._options


@pytest.mark.parametrize("precision", ("bf16", "bfloat16", torch.bfloat16))
def test_names_of_bfloat16(precision):
    if dycl.info().get("bf16"):
        assert dycl.accelerate(lambda x: x, precision=precision)._options \
            == dycl.accelerate(lambda x: x, precision="bf16")._options != 0
    with pytest.raises(ValueError, match="pack=False"):
        dycl.accelerate(precision=precision, pack=False)


def test_options_are_looked_at_before_there_is_a_target():
    for options in ({"pack": 1}, {"pack": None}):
        with pytest.raises(TypeError, match="pack"):
            dycl.accelerate(**options)
    for precision in ("f16", "torch.f32", torch.float16, float, None):
        with pytest.raises(ValueError, match="precision"):
            dycl.accelerate(precision=precision)
    with pytest.raises(TypeError, match="takes a torch.nn.Module or a function"):
        dycl.accelerate(None)


def test_options_are_looked_at_where_nothing_is_accelerated():
    program = """
import sys
sys.modules["dycl._core"] = None
import warnings, dycl
warnings.simplefilter("ignore")
f = dycl.accelerate(lambda x: x)
try:
    dycl.accelerate(f, precision="int4")
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("precision is 'f32' or 'bf16'"), done.stderr


def test_what_they_look_like():
    def scaled(x):
        return x * 2

    model = dycl.accelerate(nn.Linear(2, 2))
    assert re.fullmatch(r"<dycl\.accelerate\(<function .*scaled at 0x\w+>\)>", repr(dycl.accelerate(scaled)))
    assert repr(model) == "Linear(in_features=2, out_features=2, bias=True)"
    site = model._compiled_call_impl
    assert re.fullmatch(r"<dycl: calls of a Linear at 0x\w+>", repr(site))
    del model
    assert repr(site) == "<dycl: a module that is gone>"


def test_the_command_line(tmp_path):
    def start(*arguments):
        return subprocess.run([sys.executable, "-X", "importtime", "-m", "dycl", *arguments], capture_output=True,
                              text=True, timeout=120, cwd=tmp_path)

    done = start("--version")
    assert re.fullmatch(rf"dycl {dycl.__version__} \(oneDNN [\d.]+, kernels for \w+, torch "
                        rf"{re.escape(torch.__version__.split('+')[0])}\S*, Python [\d.]+\)\n", done.stdout)
    assert "| torch\n" not in done.stderr, "torch takes seconds"
    done = start("--help")
    assert done.stdout.startswith("usage: python -m dycl") and "docs/environment.md" in done.stdout \
        and done.returncode == 0
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:])")
    assert start("program.py", "--version").stdout == "['--version']\n"  # the program's own
