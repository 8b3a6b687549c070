"""Processes that run a program in Python and torch. Importing torch is what most of them would spend their time with,
one to two seconds: here one process imports it and forks one for each program (zygote.py).

A forked process is one whose interpreter, torch and libraries began without the program's own variables. So there is
such a process for each set of the others: all but dycl's and a few that are known to be read later. A process is really
started with options of the interpreter, with a library before all others, and with DYCL_TEST_FULL=1."""

import atexit
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time

# Beside those that begin with DYCL_: read when they are needed, not when the process begins.
LATE = {"HOME", "PYTEST_CURRENT_TEST", "PYTHONPATH", "XDG_CACHE_HOME"}
IMPORTS = re.compile(r"^\s*(import|from)\b.*\btorch\b", re.MULTILINE)
FULL = os.environ.get("DYCL_TEST_FULL", "") not in ("", "0")
HERE = os.path.dirname(os.path.abspath(__file__))
MOST = 3  # at a time: each keeps a torch in memory
_zygotes = {}  # {the process that started it and its variables: a socket to it}, the one that was asked last at the end


def run(arguments, *, env=None, cwd=None, input=None, timeout=None, check=False):
    """As subprocess.run([sys.executable, *arguments], ..., capture_output=True, text=True)."""
    process = start(arguments, env=env, cwd=cwd, input=input)
    try:
        out, error = process.communicate(input if isinstance(process, subprocess.Popen) else None, timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, error)
    if check:
        done.check_returncode()
    return done


def start(arguments, *, env=None, cwd=None, input=None):
    """A process whose communicate() gives what it printed; it has a pid, kill() and a returncode afterwards."""
    arguments, env = [str(a) for a in arguments], dict(os.environ if env is None else env)
    if _may_fork(arguments, env):
        try:
            return Forked(arguments, env, os.path.abspath(cwd or "."), input)
        except _NoZygote:
            pass
    return subprocess.Popen([sys.executable, *arguments], env=env, cwd=cwd, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.PIPE if input is not None else None)


def _may_fork(arguments, env):
    if env.get("DYCL_TEST_FULL", "0") not in ("", "0") or "LD_PRELOAD" in env or not hasattr(os, "pidfd_open"):
        return False
    if arguments[0].startswith("-") and arguments[0] not in ("-c", "-m"):
        return False
    if arguments[0] != "-c":
        return True
    # else what is imported is what it is about, or nothing would be gained
    return "sys.modules" not in arguments[1] and IMPORTS.search(arguments[1]) is not None


class _NoZygote(Exception):
    pass


def _socket(env):
    """To the process that began with these variables, but for those that are read later."""
    began = {name: value for name, value in env.items() if not name.startswith("DYCL_") and name not in LATE}
    key = (os.getpid(), *sorted(began.items()))
    if key not in _zygotes:
        for other in list(_zygotes)[:-MOST + 1 or None]:
            _zygotes.pop(other).close()  # it ends when all that it forked have ended
        ours, theirs = socket.socketpair()
        with theirs:
            program = (f"import sys; sys.path.insert(0, {HERE!r}); import zygote; sys.path.remove({HERE!r}); "
                       f"exec(zygote.serve({theirs.fileno()}))")
            process = subprocess.Popen([sys.executable, "-c", program], env=began, pass_fds=[theirs.fileno()],
                                       stdin=subprocess.DEVNULL)
        _zygotes[key] = ours
        atexit.register(_end, ours, process, os.getpid())
    _zygotes[key] = _zygotes.pop(key)
    return _zygotes[key]


def _end(ours, process, pid):
    if os.getpid() == pid:
        ours.close()
        process.wait()


class Forked:
    """What is needed of a subprocess.Popen."""

    def __init__(self, arguments, env, cwd, input):
        self.args, self.returncode = [sys.executable, *arguments], None
        self._answer, answer = os.pipe()
        self._streams, theirs = zip(*(os.pipe() for _ in range(2)))
        with tempfile.TemporaryFile("w+") as request, tempfile.TemporaryFile("w+") as stdin:
            json.dump([arguments, env, cwd], request)
            stdin.write(input or "")
            for file in (request, stdin):
                file.flush()
                file.seek(0)
            files = [request.fileno(), answer, stdin.fileno(), *theirs]
            try:
                socket.send_fds(_socket(env), [b"?"], files)
            except OSError:
                raise _NoZygote from None
            finally:
                for file in (answer, *theirs):
                    os.close(file)
        self._said = {file: b"" for file in (*self._streams, self._answer)}
        self._open = set(self._said)
        while b"\n" not in self._said[self._answer]:
            more = os.read(self._answer, 64)
            if not more:
                raise _NoZygote
            self._said[self._answer] += more
        self.pid = int(self._said[self._answer].split()[0])

    def communicate(self, input=None, timeout=None):
        until = None if timeout is None else time.monotonic() + timeout
        while self._open:
            left = None if until is None else max(0, until - time.monotonic())
            ready = select.select(list(self._open), [], [], left)[0]
            if not ready:
                raise subprocess.TimeoutExpired(self.args, timeout)
            for file in ready:
                more = os.read(file, 65536)
                self._said[file] += more
                if not more:
                    self._open.discard(file)
                    os.close(file)
        self.returncode = int(self._said[self._answer].split()[1])
        return tuple(self._said[file].decode() for file in self._streams)

    def kill(self):
        if len(self._said[self._answer].split()) < 2:
            os.kill(self.pid, 9)
