"""A process that was forked (started.py) is as one that was started: its output, its end, what it finds around it."""

import os
import subprocess
import sys
import time

import pytest

import started

PROGRAMS = {
    "output": "import sys; print('a'); print('b', file=sys.stderr); sys.stdout.write('no end of line')",
    "much output": "import sys\nfor n in range(3000): print('x' * 100); print('y' * 100, file=sys.stderr)",
    "status": "import sys; print('a'); sys.exit(3)",
    "text": "import sys; sys.exit('why')",
    "at once": "import os; print('lost'); os._exit(4)",
    "crash": "import ctypes, sys; print('lost'); ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "killed": "import signal; signal.raise_signal(signal.SIGKILL)",
    "ctrl-c": "import signal\ntry: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print('caught')",
    "at exit": "import atexit; atexit.register(print, 'at exit'); print('a')",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()",
    "main": "import __main__, sys; print(__name__, sorted(n for n in vars(__main__) if n[0] != '_'), sys.argv)\n"
            "x = 1\nassert __main__.x == 1",
    "path": "import sys, os; print(sys.path, os.getcwd())",
    "modules": "from sys import modules\n"
               "print([m for m in modules if m.split('.')[0] in ('dycl', 'zygote', 'started')])",
    "C": "import ctypes; f = ctypes.CDLL(None).getenv; f.restype = ctypes.c_char_p; print(f(b'DYCL_LOG'), f(b'HOME'))",
    "files": "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:3])",
    "input": "import sys; print(repr(sys.stdin.read()))",
    "fork": "import os, sys\nif os.fork() == 0: print('child', flush=True); os._exit(0)\nprint(os.wait()[1])",
    "team": "import torch; print(torch.get_num_threads(), (torch.ones(500, 500) @ torch.ones(500, 500)).sum().item())",
    "random": "import torch; torch.manual_seed(5); print(torch.rand(2).tolist(), torch.initial_seed())",
    "numpy": "import numpy; print((numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum())",
}


def both(arguments, **more):
    if arguments[0] == "-c":
        arguments = ["-c", f"if 0:\n    import torch\n{arguments[1]}", *arguments[2:]]
    forked = started.start(arguments, **more)
    assert isinstance(forked, started.Forked), "nothing stands against it"
    out, error = forked.communicate(timeout=60)
    text = more.pop("input", "")
    real = subprocess.run([sys.executable, *map(str, arguments)], input=text, text=True, capture_output=True, **more)
    return (out, error, forked.returncode), (real.stdout, real.stderr, real.returncode)


@pytest.mark.skipif(started.FULL, reason="all processes are started")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name, tmp_path):
    forked, real = both(["-c", PROGRAMS[name], "one", "two"], cwd=tmp_path, input="some\ntext" * (name == "input"),
                        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'x'}", "DYCL_LOG": "x", "HOME": str(tmp_path)})
    assert forked == real and (name in ("status", "text", "at once", "crash", "abort", "killed")) == (real[2] != 0)


@pytest.mark.skipif(started.FULL, reason="all processes are started")
def test_a_file_and_a_module(tmp_path):
    program = ("import sys, other", "print(__name__, __file__, sys.argv, sys.path[0], other.x)",
               "if __name__ == '__main__': 1/0")
    (tmp_path / "program.py").write_text("\n".join(program))
    (tmp_path / "other.py").write_text("x = 1\n")
    forked, real = both([tmp_path / "program.py", "one"])
    assert forked[::2] == real[::2] and forked[1].splitlines()[-1] == real[1].splitlines()[-1]
    forked, real = both(["-m", "program", "one"], cwd=tmp_path)
    assert forked[::2] == real[::2] and forked[1].splitlines()[-1] == real[1].splitlines()[-1]


@pytest.mark.skipif(started.FULL, reason="all processes are started")
def test_several_at_a_time_and_one_that_does_not_end():
    begin = time.monotonic()
    several = [started.start(["-c", f"import time, torch; time.sleep(1); print({n})"]) for n in range(4)]
    with pytest.raises(subprocess.TimeoutExpired):
        started.run(["-c", "import time, torch; print(1, flush=True); time.sleep(100)"], timeout=0.2)
    assert [process.communicate()[0] for process in several] == [f"{n}\n" for n in range(4)]
    assert time.monotonic() - begin < 20


def test_random_numbers_are_a_process_of_its_own():
    """And differ from one to the next."""
    program = "import random, torch; print(torch.rand(1).item(), random.random())"
    seen = [n for _ in range(3) for n in started.run(["-c", program]).stdout.split()]
    assert len(set(seen)) == len(seen) == 6


@pytest.mark.parametrize("arguments, variables", [
    (["-c", "import torch"], {"LD_PRELOAD": ""}), (["-c", "import torch"], {"DYCL_TEST_FULL": "1"}),
    (["-c", "pass"], {}), (["-c", "import torch, sys; sys.modules"], {}), (["-W", "error", "-c", "import torch"], {}),
])
def test_what_is_read_at_the_start_is_started(arguments, variables):
    process = started.start(arguments, env={**os.environ, **variables})
    assert isinstance(process, subprocess.Popen) and process.communicate() == ("", "") and process.returncode == 0


BEGAN = """
import ctypes, torch
environ = ctypes.CDLL(None).getenv
environ.restype = ctypes.c_char_p
print(torch.get_num_threads(), hash("a"), environ(b"PATH") is None)
"""


@pytest.mark.skipif(started.FULL, reason="all processes are started")
def test_each_set_of_variables_has_a_process_that_began_with_it(tmp_path, monkeypatch):
    """More than are kept at a time, and back to the first."""
    monkeypatch.setattr(started, "MOST", 1)
    told = tmp_path / "told"
    first = {**os.environ, "PYTHONHASHSEED": "3", "OMP_NUM_THREADS": "2"}
    second = {name: value for name, value in first.items() if name != "PATH"} | {"OMP_NUM_THREADS": "1"}
    waits = started.start(["-c", f"import os, time, torch\nwhile not os.path.exists({str(told)!r}): time.sleep(0.1)\n"
                                 "print(1)"], env=first)
    several = [started.start(["-c", BEGAN], env=env) for env in (first, second, second, first)]
    assert all(isinstance(process, started.Forked) for process in several)
    said = [process.communicate()[0].split() for process in several]
    assert said[0] == said[3] and said[1] == said[2] and len({hashed for _, hashed, *_ in said}) == 1
    assert [n for n, *_ in said] == ["2", "1", "1", "2"] and [path for *_, path in said[:2]] == ["False", "True"]
    told.touch()
    assert waits.communicate() == ("1\n", "") and waits.returncode == 0  # though nobody else asks there
