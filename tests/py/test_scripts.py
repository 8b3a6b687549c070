"""python -m dycl: what python itself would do, compared with python itself: output, errors, exit status, and what a
program can see of its start."""

import os
import signal
import subprocess
import sys
import textwrap
import zipfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def start(words, directory, text="", **environment):
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    space = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **environment}
    done = subprocess.run([sys.executable, *words], cwd=directory, env=space, input=text, capture_output=True,
                          text=True, timeout=240)
    return done.stdout, done.stderr, done.returncode


def write(directory, name, code):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code))
    return path


def alike(directory, *words, options=(), text=""):
    """Runs it both ways; the outcome, which is the same."""
    want = start([*options, *words], directory, text)
    got = start([*options, "-m", "dycl", *words], directory, text)
    # python names itself as it was called, which a program cannot know
    assert got == want, (got, want)
    return want


SEES = """
    import sys
    print(sys.argv, sys.path, sorted(globals()), __name__, __spec__, __package__, __doc__, __cached__, __annotations__)
    print(type(__loader__), __loader__.name, __loader__.path, __file__, sys.modules["__main__"].__dict__ is globals(), __builtins__)
    print("torch" in sys.modules, "numpy" in sys.modules, sys.flags, sys.excepthook, sys.stdin.read())
    x: int = 3
    print(__annotations__)
"""


@pytest.mark.parametrize("how", ["plain", "absolute", "below", "isolated path", "linked", "option-like arguments"])
def test_what_a_script_sees(how, tmp_path):
    path = write(tmp_path, "below/program.py", SEES)
    (tmp_path / "link.py").symlink_to(path)
    words = {
        "plain": (["program.py", "a", "b c"], path.parent, ()),
        "absolute": ([str(path)], "/", ()),
        "below": (["below/program.py", "1"], tmp_path, ()),
        "isolated path": (["program.py"], path.parent, ("-P",)),
        "linked": (["./link.py"], tmp_path, ()),
        "option-like arguments": (["program.py", "-m", "--help", "-h", "--", "-"], path.parent, ()),
    }[how]
    out, error, status = alike(words[1], *words[0], options=words[2], text="typed\n")
    assert status == 0 and not error and "typed" in out


@pytest.mark.parametrize("options", [(), ("-P",)], ids=str)
@pytest.mark.parametrize("program", ["""
import sys, near
print(sys.argv, sys.path[0], sorted(globals()), __name__, __spec__, __package__, __doc__, __annotations__, __loader__)
print(near.value, repr(sys.stdin.read()))
""", "print('begun')\n1 / 0\n", "import sys; sys.exit(3)", "def f(:\n"], ids=["sees", "raises", "exits", "is none"])
def test_a_program_on_standard_input(program, options, tmp_path):
    write(tmp_path, "near.py", "value = 5")
    alike(tmp_path, "-", "a", "-b", options=options, text=program)


@pytest.mark.parametrize("name", ["part", "part.inner", "part.__main__"])
def test_what_a_module_sees(name, tmp_path):
    write(tmp_path, "part/__init__.py", "import sys; print('package', sys.argv)")
    write(tmp_path, "part/__main__.py", "from . import near; import sys; print(__name__, __package__, __spec__.name, "
                                        "sys.argv, sys.path[0], near.value)")
    write(tmp_path, "part/inner.py", "import sys; print(__name__, __package__, __spec__.name, __file__, sys.argv, "
                                     "sys.path[0], sorted(globals()))")
    write(tmp_path, "part/near.py", "value = 5")
    out, error, status = alike(tmp_path, "-m", name, "a", "-b")
    assert status == 0 and not error and "package ['-m', 'a', '-b']" in out


def test_directories_and_archives(tmp_path):
    write(tmp_path, "place/__main__.py", "import sys, near; print(__name__, sys.argv, sys.path[0], near.value, "
                                         "__spec__ and __spec__.name)\n1/0")
    write(tmp_path, "place/near.py", "value = 5")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for name in ("__main__.py", "near.py"):
            archive.write(tmp_path / "place" / name, name)
    for name in ("place", "archive.zip", "./place/"):
        out, error, status = alike(tmp_path, name, "a")
        assert "5" in out and "ZeroDivisionError" in error and status == 1


def test_compiled_files(tmp_path):
    import py_compile

    py_compile.compile(str(write(tmp_path, "program.py", "print(__file__, __name__, type(__loader__))\nraise "
                                                         "SystemExit(4)")), cfile=str(tmp_path / "program.pyc"))
    assert alike(tmp_path, "program.pyc")[2] == 4


ENDS = {
    "error": "def f(): raise ValueError('own')\nf()",
    "chained": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError(3) from e",
    "in context": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    [][1]",
    "group": "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
    "syntax": "print(1)\nx = = 2",
    "syntax in an import": "import broken",
    "missing import": "import no_such_module",
    "exit 3": "import sys; sys.exit(3)",
    "exit with a message": "import sys; sys.exit('bye')",
    "exit None": "raise SystemExit",
    "exit from a function in a handler": "import sys\ntry:\n    1/0\nexcept ZeroDivisionError:\n    sys.exit(7)",
    "os._exit": "import os, sys; print('x'); sys.stdout.flush(); os._exit(9)",
    "interrupted": "raise KeyboardInterrupt",
    "a subclass of SystemExit": "class E(SystemExit): pass\nraise E(5)",
    "own hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0], a[1], a[2].tb_frame.f_code.co_name, "
                "a[2].tb_lineno)\n1/0",
    "at exit": "import atexit\natexit.register(lambda: print('later'))\n1/0",
    "last traceback": "import atexit, sys, traceback\natexit.register(lambda: "
                      "traceback.print_tb(sys.last_traceback))\n1/0",
    "threads": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()\n1/0",
    "recursion": "import sys\nsys.setrecursionlimit(60)\ndef f(): return f() + 1\ntry: f()\nexcept RecursionError: "
                 "print('deep')",
    "killed": "import signal; signal.raise_signal(signal.SIGTERM)",
    "encoding": "# -*- coding: latin-1 -*-\nprint(ascii('\u00e9'))",
    "future": "from __future__ import annotations\ndef f(x: no_such_name): pass\nprint(f.__annotations__)",
    "warning": "import warnings; warnings.warn('careful')",
    "finalizers": "class A:\n    def __del__(self): print('gone', A is not None)\na = A()",
    "main found by name": "import __main__; x = 3; print(__main__.x)",
}


@pytest.mark.parametrize("how", ENDS)
def test_how_a_script_ends(how, tmp_path):
    write(tmp_path, "broken.py", "def f(:\n    pass")
    (tmp_path / "program.py").write_text(ENDS[how], encoding="latin-1" if how == "encoding" else "utf-8")
    _, error, status = alike(tmp_path, "program.py")
    assert "dycl" not in error
    if how == "interrupted":
        assert status == -signal.SIGINT
    if how not in ("syntax in an import",):
        assert "dycl" not in alike(tmp_path, "-m", "program")[1]


def test_a_hook_that_fails(tmp_path):
    write(tmp_path, "program.py", "import sys\ndef hook(*a): 1/0\nsys.excepthook = hook\n{}[1]")
    want, got = start(["program.py"], tmp_path), start(["-m", "dycl", "program.py"], tmp_path)
    lines = got[1].splitlines()
    at = next(i for i, line in enumerate(lines) if "dycl" in line)  # the one frame of ours, which called the hook
    # its line, and in 3.13 carets below
    behind = next(i for i in range(at + 1, len(lines)) if not lines[i].startswith("    "))
    assert lines[:at] + lines[behind:] == want[1].splitlines() and got[2] == want[2] == 1


def test_what_is_not_there(tmp_path):
    for words in (["nothing.py"], ["-m", "nothing"], ["-m", "nothing.more"], ["."], ["-m", "os.path.more"]):
        assert alike(tmp_path, *words)[2] != 0
    out, error, status = start(["-m", "dycl"], tmp_path)
    assert (out, status) == ("", 2) and error.startswith("usage: python -m dycl script.py")
    assert start(["-m", "dycl", "-m"], tmp_path)[2] == 2
    assert start(["-m", "dycl", "--help"], tmp_path)[0].startswith("usage:")


MODEL = """
    import os, sys, pickle
    os.environ["OMP_NUM_THREADS"] = "1"      # before torch, as scripts do
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 2)
        def forward(self, x):
            x = self.a(x).relu()
            if x.sum() > 0:
                x = x * 2
            return self.b(x).softmax(-1)

    if __name__ == "__main__":
        torch.manual_seed(0)
        model = Net().eval()
        with torch.no_grad():
            for n in range(1, 6):
                print([round(v, 4) for v in model(torch.rand(n, 8)).flatten().tolist()])
        print(torch.get_num_threads(), type(pickle.loads(pickle.dumps(model))) is Net, Net.__module__)
        model(torch.rand(2, 8)).sum().backward()
        print(model.a.weight.grad.shape, sorted(vars(model)))
"""


def test_a_script_with_a_model(tmp_path):
    write(tmp_path, "program.py", MODEL)
    alike(tmp_path, "program.py")
    alike(tmp_path, "-m", "program")
    tail = """
        if __name__ == "__main__":
            import dycl
            counts = dycl.stats(model)
            print(counts["calls"], counts["plain_grad"], counts["plain_disabled"], counts["recorded"] > 20)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(MODEL) + textwrap.dedent(tail))
    assert start(["-m", "dycl", "program.py"], tmp_path)[0].splitlines()[-1] == "6 0 0 True"
    assert start(["-m", "dycl", "program.py"], tmp_path, DYCL_TRAIN="0")[0].splitlines()[-1] == "5 1 0 True"
    assert start(["-m", "dycl", "program.py"], tmp_path, DYCL_DISABLE="1")[0].splitlines()[-1] == "0 0 6 False"


def test_errors_in_a_model_show_the_same_places(tmp_path):
    write(tmp_path, "program.py", textwrap.dedent(MODEL) + "\nmodel(torch.rand(2, 7))\n")
    want = start(["program.py"], tmp_path)
    got = start(["-m", "dycl", "program.py"], tmp_path)
    own = lambda text: [line for line in text.splitlines() if "program.py" in line
                        or not line.startswith(" ")]  # noqa: E731
    assert own(got[1]) == own(want[1]) and "mat1 and mat2 shapes cannot be multiplied" in got[1]


def test_where_torch_is_missing_or_broken(tmp_path):
    write(tmp_path, "program.py", "try:\n    import torch\nexcept ImportError as e:\n    print(type(e), e)\nimport "
                                  "torch\n")
    for content in ("raise ImportError('not here')", "x = 1/0", "import no_such_part", "x = = 1"):
        write(tmp_path, "torch.py", content)
        want = start(["program.py"], tmp_path)
        got = start(["-m", "dycl", "program.py"], tmp_path)
        assert got == want and want[2] == 1, (got, want)
    write(tmp_path, "torch.py", "x = 1")  # a module of that name that is no torch at all
    write(tmp_path, "program.py", "import torch\nprint(torch.x)")
    out, error, status = start(["-m", "dycl", "program.py"], tmp_path)
    assert (out, status) == ("1\n", 0) and "programs run in torch" in error


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children(method, tmp_path):
    code = f"""
        import multiprocessing, torch
        from program_model import Net

        def work(seed):
            torch.set_num_threads(1)
            torch.manual_seed(seed)
            with torch.no_grad():
                return [round(v, 4) for v in Net().eval()(torch.ones(2, 8)).flatten().tolist()]

        if __name__ == "__main__":
            torch.set_num_threads(1)
            print(work(3))
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                print(pool.map(work, range(4)))
    """
    write(tmp_path, "program_model.py", MODEL)
    write(tmp_path, "program.py", code)
    assert alike(tmp_path, "program.py")[2] == 0
