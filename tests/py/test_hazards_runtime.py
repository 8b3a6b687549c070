"""What surrounds a program: backward, torch.func on top, worker processes, profilers and tracers, event loops,
reference counts, signals."""

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import dycl
import pytest
import torch
from same import same
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def mlp(width=8):
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 3)).eval()


def expected(model, *args):
    with dycl.disable():
        return model(*args)


# ---- gradients


@pytest.mark.parametrize("how", ["parameters", "input", "frozen", "frozen in part", "detached"])
def test_backward(how):
    def train(model, x):
        if how.startswith("frozen"):
            for p in list(model.parameters())[: None if how == "frozen" else 4]:
                p.requires_grad_(False)
        x = x.clone().requires_grad_(how in ("input", "frozen"))
        losses = []
        for _ in range(3):
            y = model(x)
            if how == "detached":
                y = model(x.detach()) * y.detach() + y
            loss = y.square().sum()
            loss.backward()
            losses.append((loss, y))
        return losses, x.grad, [p.grad for p in model.parameters()], model

    same(train, lambda: (mlp(), torch.randn(4, 8)), grad=True, like="matmul", recorded=None, calls=1,
         versions=False, accelerate=lambda model, x: model)


def test_double_backward_and_hooks_on_results():
    def program(model, x):
        x = x.clone().requires_grad_()
        y = model(x).sum()
        seen = []
        x.register_hook(lambda g: seen.append(g.clone()))
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        g.square().sum().backward()
        return y, g, x.grad, seen

    same(program, lambda: (mlp(), torch.randn(4, 8)), grad=True, like="matmul", recorded=None,
         accelerate=lambda model, x: model)


@pytest.mark.parametrize("how", ["vmap", "grad", "jvp", "jacrev", "functional_call", "vmap of grad"])
def test_torch_func_on_top(how):
    model = mlp()
    x, tangent = torch.randn(5, 8), torch.randn(8)

    def apply(f):
        if how == "vmap":
            return torch.func.vmap(f)(x)
        if how == "grad":
            return torch.func.grad(lambda v: f(v).sum())(x[0])
        if how == "jvp":
            return torch.func.jvp(f, (x[0],), (tangent,))
        if how == "jacrev":
            return torch.func.jacrev(f)(x[0])
        if how == "vmap of grad":
            return torch.func.vmap(torch.func.grad(lambda v: f(v).sum()))(x)
        parameters = {k: v.detach() * 2 for k, v in model.named_parameters()}
        return torch.func.functional_call(model, parameters, (x,))

    with torch.no_grad():
        want = apply(model)
        dycl.accelerate(model)
        for _ in range(3):
            torch.testing.assert_close(apply(model), want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(x), expected(model, x), rtol=1e-4, atol=1e-5)


# ---- processes


class Samples(torch.utils.data.Dataset):
    """Each sample goes through a model, in the worker."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 12

    def __getitem__(self, i):
        with torch.no_grad():
            return self.model(torch.full((1, 8), i / 12.0))[0], os.getpid()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers):
    model = dycl.accelerate(mlp())
    head = dycl.accelerate(nn.Linear(3, 2).eval())
    with torch.no_grad():
        for _ in range(3):
            model(torch.ones(1, 8))
        want = expected(model, torch.arange(12).div(12.0)[:, None].expand(12, 8))
        for _ in range(2):
            loader = torch.utils.data.DataLoader(Samples(model), batch_size=3, num_workers=workers,
                                                 timeout=60 if workers else 0)
            outputs, processes = [], set()
            for batch, pids in loader:
                processes |= set(pids.tolist())
                torch.testing.assert_close(head(batch), expected(head, batch))  # the parent goes on meanwhile
                torch.testing.assert_close(model(torch.ones(2, 8)), expected(model, torch.ones(2, 8)))
                outputs.append(batch)
            torch.testing.assert_close(torch.cat(outputs), want, rtol=1e-5, atol=1e-5)
            assert (os.getpid() in processes) == (workers == 0) and len(processes) == max(workers, 1)


# ---- profilers, tracers, event loops


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inside", [False, True])
def test_torch_profiler(inside):
    model = mlp()
    x = torch.randn(4, 8)

    def program(x):
        if not inside:
            return model(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True):
            with torch.profiler.record_function("mine"):
                y = model(x)
        return y

    with torch.no_grad():
        want = program(x)
        f = dycl.accelerate(program)
        for _ in range(3):
            with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU]) if not inside else threading.Lock() as profile:
                got = f(x)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            assert type(got) is torch.Tensor
        if not inside:
            assert len(profile.key_averages()) >= 0
        with torch.autograd.profiler.profile() as profile:
            torch.testing.assert_close(f(x), want, rtol=1e-5, atol=1e-5)
    assert dycl.stats(f)["recorded"] >= 4


@pytest.mark.parametrize("install", ["settrace", "setprofile"])
def test_tracers_see_the_same_events(install):
    """A debugger or a profiler of Python reads locals while results are pending."""

    def work(x):
        y = x + 1
        z = [y * 2, y.sum()]
        if z[1] > 0:
            y = y.tanh()
        return y + z[0]

    def watch(f, x):
        events = []

        def tracer(frame, event, argument):
            if frame.f_code is not work.__code__:
                return None
            if event.startswith("c_"):
                return tracer  # a recorded operator is no call of a C function of torch's
            events.append((frame.f_lineno, event, sorted(frame.f_locals)))
            if "y" in frame.f_locals:
                events.append((repr(frame.f_locals["y"]), isinstance(argument, torch.Tensor)))
            return tracer

        before = sys.gettrace() if install == "settrace" else sys.getprofile()
        getattr(sys, install)(tracer)
        try:
            result = f(x)
        finally:
            getattr(sys, install)(before)
        return events, result

    with torch.no_grad():
        x = torch.linspace(0.1, 1, 3)
        want = watch(work, x)
        f = dycl.accelerate(work)
        for _ in range(3):
            got = watch(f, x)
            assert got[0] == want[0]
            torch.testing.assert_close(got[1], want[1])


def test_coroutines_take_turns():
    model = dycl.accelerate(mlp())
    variable = contextvars.ContextVar("v", default=0)

    @dycl.accelerate
    def step(x, n):
        variable.set(variable.get() + n)
        return model(x) * n

    async def worker(n):
        x = torch.full((2, 8), float(n))
        found = []
        for _ in range(4):
            found.append(step(x, n))
            await asyncio.sleep(0)
        return found, variable.get()

    async def everyone():
        return await asyncio.gather(*[worker(n) for n in range(1, 5)])

    with torch.no_grad():
        for n, (found, value) in enumerate(asyncio.run(everyone()), start=1):
            assert value == 4 * n
            for y in found:
                torch.testing.assert_close(y, expected(model, torch.full((2, 8), float(n))) * n)


def test_a_coroutine_that_leaves_a_region_pending():
    """A generator made inside a region is run on after it, and in another thread."""

    @dycl.accelerate
    def begin(x):
        def steps():
            y = x * 2
            yield y
            y = y + 1
            yield y
            yield (y * y).sum()

        g = steps()
        return next(g), g

    x = torch.ones(3)
    with torch.no_grad():
        for _ in range(3):
            first, g = begin(x)
            assert torch.equal(first, x * 2) and torch.equal(next(g), x * 3)
            box = []

            def rest():
                with torch.no_grad():
                    box.extend(g)

            thread = threading.Thread(target=rest)
            thread.start()
            thread.join()
            assert float(box[0]) == 27.0


def test_recursion_to_the_limit():
    def deep(x, n):
        return deep(x + 1, n - 1) if n else x.sum()

    def forever(x):
        return forever(x * 1.0)

    f, g = dycl.accelerate(deep), dycl.accelerate(forever)
    with torch.no_grad():
        x = torch.zeros(2)
        for _ in range(3):
            assert float(f(x, 300)) == 600.0
            with pytest.raises(RecursionError):
                g(x)
        assert float(f(x, 3)) == 6.0


# ---- reference counts


def test_reference_counts_are_eagers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.kept = None

        def forward(self, x, log):
            y = self.linear(x)
            log.append((sys.getrefcount(x), sys.getrefcount(y), sys.getrefcount(self.linear.weight),
                        sys.getrefcount(self)))
            z = [y, y]
            log.append(sys.getrefcount(y))
            self.kept = y.relu()
            log.append(sys.getrefcount(self.kept))
            return z

    def counts(accelerate):
        torch.manual_seed(0)
        model, x = Model().eval(), torch.ones(2, 4)
        if accelerate:
            dycl.accelerate(model)
        rows = []
        for _ in range(4):
            log = []
            z = model(x, log)
            gc.collect()
            rows.append((log, sys.getrefcount(x), sys.getrefcount(z), sys.getrefcount(z[0]),
                         sys.getrefcount(model.kept), sys.getrefcount(model.linear.weight), sys.getrefcount(model)))
        return rows

    with torch.no_grad():
        want, got = counts(False), counts(True)
    for a, b in zip(want, got):
        assert a[1:] == b[1:], (a, b)  # outside a region: all as ever
        # inside, what a pending segment reads is held by it too
        assert [len(row) if isinstance(row, tuple) else row for row in a[0]] == [len(row) if isinstance(row, tuple)
                                                                                 else row for row in b[0]], (a, b)


def test_results_die_where_eagers_do():
    """Finalizers of what hangs on a result run at the same place of the program."""

    class Noise:
        def __init__(self, log, name):
            self.log, self.name = log, name

        def __del__(self):
            self.log.append(self.name)

    def program(x, log):
        y = x + 1
        y.tag = Noise(log, "y")
        z = y * 2
        z.tag = Noise(log, "z")
        log.append("made")
        del y
        log.append("after y")
        z = z.sum()
        log.append("after z")
        w = [z * i for i in range(3)]
        w[1].tag = Noise(log, "w1")
        w.clear()
        log.append("end")
        return z

    with torch.no_grad():
        want = []
        program(torch.ones(2), want)
        f = dycl.accelerate(program)
        for _ in range(3):
            got = []
            f(torch.ones(2), got)
            assert got == want


# ---- signals


def test_a_signal_handler_that_computes():
    """It runs between any two operators: on the same model, in the middle of a region. The next signal is asked for at
    its end: with a timer that goes on, handlers would nest without end where one takes longer than the interval (a
    debug build, a busy machine)."""
    model = dycl.accelerate(mlp())
    x = torch.randn(2, 8)
    seen = []
    again = [0.0005]

    def handler(number, frame):
        with torch.no_grad():
            seen.append(model(x))
        signal.setitimer(signal.ITIMER_REAL, again[0])

    @dycl.accelerate
    def program(x):
        y = x
        for i in range(400):
            y = (y + 1) * 0.5
            if i % 50 == 0:
                y = y + float(y.sum()) * 0
        return y

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, again[0])
    try:
        with torch.no_grad():
            want, inner = expected(program, x), expected(model, x)
            stop = time.monotonic() + 1
            while time.monotonic() < stop:
                torch.testing.assert_close(program(x), want)
    finally:
        again[0] = 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) > 20
    for y in seen:
        torch.testing.assert_close(y, inner)


def test_an_exception_set_from_another_thread():
    """As debuggers and timeouts do it."""
    import ctypes

    class Stop(Exception):
        pass

    @dycl.accelerate
    def program(x, started):
        started.set()
        while True:
            x = (x + 1) * 0.5
            if x.sum() > 1e9:
                break

    outcome = []

    def work(started):
        with torch.no_grad():
            try:
                program(torch.ones(3), started)
            except Stop:
                outcome.append(torch._C._len_torch_function_stack())
            outcome.append(program.__wrapped__ is not None and dycl.accelerate(lambda x: x + 1)(torch.ones(1)).tolist())

    for _ in range(5):
        started = threading.Event()
        thread = threading.Thread(target=work, args=(started,))
        thread.start()
        assert started.wait(20)
        time.sleep(0.01)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
        thread.join(20)
        assert not thread.is_alive()
    assert outcome == [0, [2.0]] * 5


ENDING = """
import atexit, threading, time, torch, dycl
torch.set_grad_enabled(False)
model = dycl.accelerate(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).eval())
x = torch.ones(4, 64)
want = model(x)

def again():
    assert torch.allclose(model(x), want, atol=1e-5)
    print("at exit", flush=True)

atexit.register(again)

stop = time.monotonic() + 0.6

def work():
    with torch.no_grad():
        while time.monotonic() < stop:
            model(x)

class Late:
    def __del__(self):
        if torch is not None:
            model(x)
            print("finalizer", flush=True)

late = Late()
for _ in range(2):
    threading.Thread(target=work).start()
time.sleep(0.2)
print("end", flush=True)
"""


def test_the_interpreter_ends_while_regions_run():
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(ENDING)], env={**os.environ, "PYTHONPATH": path},
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.startswith("end\nat exit\n"), \
            (done.returncode, done.stdout, done.stderr)
