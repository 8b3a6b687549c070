"""The other side of started.py: a process that has imported torch, and nothing of dycl, forks one for each program.

`python -c "import zygote; exec(zygote.serve(FD))"` answers requests from the socket FD until it is closed. In a forked
process serve() returns the code of its program, which so runs as the main module of an interpreter that afterwards ends
as any other: with atexit, joined threads, flushed files and its own exit status."""

import json
import os
import select
import signal
import socket
import sys




def serve(number):
    """The code of a program, in a process of its own. Never returns in the one that was started."""
    import gc

    import torch  # noqa: F401 (what all this is for)

    gc.freeze()

    asked, children = socket.socket(fileno=number), {}
    path, asks = [entry for entry in sys.path if entry], [asked]  # without the program's own place, which comes first
    while asks or children:
        for ready in select.select([*asks, *children], [], [])[0]:
            if ready is not asked:
                answer, pid = children.pop(ready)
                os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(answer)
                os.close(ready)
                continue
            message, files, *_ = socket.recv_fds(asked, 1, 5)
            if not message:
                asks.clear()  # the tests have ended, or need no more of these
                continue
            request, answer, *streams = files
            pid = os.fork()
            if not pid:
                asked.close()
                for one, (other, _) in children.items():
                    os.close(one)
                    os.close(other)
                os.close(answer)
                return program(request, streams, path)
            os.write(answer, b"%d\n" % pid)
            children[os.pidfd_open(pid)] = answer, pid
            for file in (request, *streams):
                os.close(file)
    os._exit(0)


def program(request, streams, path):
    """Makes this process what was asked for, all but running the program, whose code it returns."""
    signal.set_wakeup_fd(-1)
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    with open(request, encoding="utf-8") as file:
        file.seek(0)
        arguments, environment, folder = json.load(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.modules["torch"].default_generator.seed()  # as that of a new process, no other's
    kind, *rest = arguments
    added = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    here = "" if kind == "-c" else folder if kind == "-m" else os.path.dirname(os.path.abspath(kind))
    sys.path[:] = [here, *added, *path]
    main = sys.modules["__main__"].__dict__
    main.pop("zygote", None)
    sys.modules.pop("zygote")
    if kind == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        return compile(rest[0], "<string>", "exec")
    if kind == "-m":
        sys.argv[:] = ["-m", *rest[1:]]
        return compile(f"__import__('runpy').run_module({rest[0]!r}, run_name='__main__', alter_sys=True)", "<string>",
                       "exec")
    sys.argv[:] = arguments
    main["__file__"] = kind
    with open(kind, "rb") as file:
        return compile(file.read(), kind, "exec")
