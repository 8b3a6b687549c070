"""Memory that runs out: allocations that fail one by one in a whole accelerated call (faults.py), address spaces with a
limit, and memory that does not grow. A call gives an exception that speaks of memory, or a right result; it never
crashes, and the next one is right."""

import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

import started
from suite import FULL

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ["Vision", "Writes", "Steps", "Loops", "Sequence", "Generation", "Reports", "Trains", "Differentiates"]


def start(*arguments, timeout=1500, run=None, **variables):
    """In a process whose memory is its own from the beginning; run: started.run, where that does not matter."""
    environment = {**os.environ, "DYCL_CHOOSE": "0", "DYCL_PROFILE": "0", **variables}
    if run:
        done = run(arguments, env=environment, cwd=HERE, timeout=timeout)
    else:
        done = subprocess.run([sys.executable, *map(str, arguments)], env=environment, cwd=HERE, capture_output=True,
                              text=True, timeout=timeout)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def pymem(tmp_path_factory):
    """Python's allocations that dycl asks for, failing on demand: native/pymem.c, compiled."""
    compiler = next((cc for cc in ("gcc", "cc", "clang") if shutil.which(cc)), None)
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("native") / "pymem.so"
    include = sysconfig.get_path("include")
    subprocess.run([compiler, "-O1", "-fPIC", "-shared", f"-I{include}", os.path.join(HERE, "native", "pymem.c"), "-o",
                    library, "-ldl"], check=True)
    return str(library)


@pytest.mark.parametrize("kind", ["core", "core-rest", "python"] + ["core-burst"] * FULL)
@pytest.mark.parametrize("case", CASES)
def test_an_allocation_fails(case, kind, pymem):
    """In calls that find something new to do: everything, the tuned plan, packed weights; and in the steady state."""
    warms = "0,1,2,4" if FULL else "0" if kind == "core-rest" else "0,1"
    stride = 1 if FULL else {"Generation": 797, "Writes": 197, "Vision": 97}.get(case, 83)
    out = start("faults.py", case, kind, warms, stride, timeout=20000 if FULL else 600,
                run=started.run, DYCL_TEST_PYMEM=pymem).splitlines()
    assert len(out) == len(warms.split(",")) and all(f"{case}, {kind}, call " in line and "a right result" in line
                                                     for line in out)


SETUP = """
import os, sys, warnings, torch, dycl
from dycl import _api, _core
torch.set_num_threads(1)
sys.path.insert(0, ".")
import faults

kind, stride = sys.argv[1], int(sys.argv[2])
begin, end = faults.KINDS[kind]()
model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.rand(3, 8)
torch.set_grad_enabled(False)
expected = model(x)
seen = {}
for n in range(0, 10**6, stride):
    child = os.fork()  # dycl is set up once in a process
    if child == 0:
        code = 99
        try:
            begin(n)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    dycl.accelerate(model)
                except MemoryError:  # where the site is made
                    pass
            asked = end()
            code = 0 if _api._ready is True else 1
            assert len(said) == code, [str(w.message) for w in said]
            first = model(x)  # in torch, where dycl could not be set up
            dycl.accelerate(model)
            again = [model(x) for _ in range(3)]
            assert all(torch.allclose(y, expected, atol=1e-5) for y in [first, *again])
            assert torch._C._len_torch_function_stack() == 0
            code = code if asked > n else 2
        except BaseException as error:
            print(n, repr(error), flush=True)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1, 2), (n, code)
    seen[code] = seen.get(code, 0) + 1
    if code == 2:
        break
print("ends at", n, seen)
"""


@pytest.mark.parametrize("kind", ["core", "python"])
def test_dycl_is_set_up_while_memory_is_short(kind, pymem):
    out = start("-c", SETUP, kind, 1 if FULL else {"core": 1, "python": 1597}[kind], DYCL_TEST_PYMEM=pymem,
                OMP_NUM_THREADS="1")
    assert "ends at" in out


# ---- Address spaces with a limit: what torch, oneDNN and the system's library ask for fails too

LIMITED = """
import resource, sys, torch, dycl
from torch import nn
import torch.nn.functional as F

torch.set_grad_enabled(False)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.transposed, self.linear = nn.Conv2d(8, 32, 3, padding=1), nn.ConvTranspose2d(32, 4, 2, stride=2), nn.Linear(1024, 2048)
        self.lstm = nn.LSTM(64, 64, batch_first=True)

    def forward(self, x, y):
        image = self.transposed(F.max_pool2d(self.conv(x).relu(), 2)).sigmoid()
        rows = F.gelu(self.linear(y)).softmax(-1)
        q = rows.view(1, -1, 32, 64).transpose(1, 2)
        mixed, _ = self.lstm(F.scaled_dot_product_attention(q, q, q).reshape(-1, 32, 64))
        return image.mean((2, 3)), mixed.sum(1), (y @ y.t()).argmax(-1), y.sort(-1)[1][:, 0]

def new():
    torch.manual_seed(0)
    return Model().eval()

def size():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

def same(got, expected):
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(got, expected))

x, y = torch.rand(2, 8, 128, 128), torch.rand(256, 1024)
expected = new()(x, y)
small = [t[:1, ..., :64].contiguous() if t is x else t[:32] for t in (x, y)]
expected_small = new()(*small)
dycl.accelerate(new())(*small)
seen = {"right": 0, "error": 0}
for megabytes in range(0, int(sys.argv[1]), int(sys.argv[2])):
    from dycl import _core
    _core.forget()
    model = dycl.accelerate(new())
    for _ in range(2):
        assert same(model(*small), expected_small)
    for call in range(3):
        resource.setrlimit(resource.RLIMIT_AS, (size() + (megabytes << 20), resource.RLIM_INFINITY))
        try:
            got = model(x, y)
        except (MemoryError, RuntimeError) as error:
            text, got = f"{type(error).__name__}: {error}", None
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if got is None:
            seen["error"] += 1
            assert "memory" in text.lower() or "alloc" in text.lower(), text
        else:
            seen["right"] += 1
            assert same(got, expected), (megabytes, call)
        assert same(model(*small), expected_small), (megabytes, call)
    assert same(model(x, y), expected) and torch._C._len_torch_function_stack() == 0
print(seen)
"""


@pytest.mark.resident  # a sanitizer needs memory of its own under the limit
@pytest.mark.parametrize("threads", [1, 2])
def test_an_address_space_with_a_limit(threads):
    seen = eval(start("-c", LIMITED, 200, 2 if FULL else 47, OMP_NUM_THREADS=str(threads), MALLOC_ARENA_MAX="1"))
    assert seen["right"] and seen["error"], seen


# ---- Memory does not grow

GROWTH = """
import gc, os, random, sys, torch, dycl
from torch import nn

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

torch.set_grad_enabled(False)
chance, calls, models = random.Random(1), int(sys.argv[1]), int(sys.argv[2])
def new():
    return dycl.accelerate(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 16), nn.Softmax(-1)).eval())

def figures(what, count, step):
    before = None
    for n in range(count):
        step(n)
        if n == count // 5:  # caches are as full as they get
            gc.collect()
            before = resident()
    gc.collect()
    print(f"{what}: {count}, resident {before:.1f} MB after a fifth of them, {resident():.1f} MB at the end", flush=True)
    return resident() - before

model = new()
shapes = [(chance.randrange(1, 400), chance.randrange(1, 8)) for _ in range(calls // 50)]
def call(n):
    rows, batch = chance.choice(shapes) if n > len(shapes) else shapes[n % len(shapes)]
    y = model(torch.ones(batch, rows, 32))
    if n % 1000 == 0:
        assert abs(float(y.sum()) - batch * rows) < 1e-2 * batch * rows

def make(n):
    model = new()
    for _ in range(4):
        model(torch.ones(n % 5 + 1, 32))
    if n % 3 == 0:
        dycl.explain(model)
    if n % 7 == 0:
        model.itself = model  # only the garbage collector ends it

grown = [figures("calls", calls, call), figures("models", models, make)]
print("grown:", *grown)
"""


@pytest.mark.resident
def test_resident_memory_is_flat(capsys):
    calls, models = (300000, 3000) if FULL else (6000, 150)
    out = start("-c", GROWTH, calls, models, timeout=7200)
    with capsys.disabled():
        print("\n" + out if FULL else "", end="")
    grown = [float(number) for number in out.split("grown:")[1].split()]
    assert all(number < 24 for number in grown), out
