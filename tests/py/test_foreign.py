"""Memory that is written without torch's Python functions while operators that read it are recorded: the results are
those of what stood there when the operator was called."""

import ctypes
import gc
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import dycl


def poke(address, value=100.0):
    ctypes.cast(address, ctypes.POINTER(ctypes.c_float))[0] = value


def dlpack(x):
    array = np.from_dlpack(x)
    return lambda: poke(array.ctypes.data)


def capsule(x):
    alias = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    return lambda: alias.fill_(100)


def array(x):
    a = x.numpy()
    return lambda: a.fill(100)


def interface(x):
    a = np.asarray(x)
    return lambda: a.fill(100)


def pointer(x):
    address = x.data_ptr()
    return lambda: poke(address)


def storage_fill(x):
    storage = x.untyped_storage()
    return lambda: storage.fill_(0x42)


def storage_copy(x):
    storage = x.untyped_storage()
    return lambda: storage.copy_(torch.full((3,), 100.0).untyped_storage())


def storage_item(x):
    storage = torch.storage.TypedStorage(wrap_storage=x.untyped_storage(), dtype=x.dtype, _internal=True)
    return lambda: storage.__setitem__(0, 100.0)


def storage_pointer(x):
    storage = x.untyped_storage()
    return lambda: poke(storage.data_ptr())


def storage_pointer_taken(x):
    """The storage object is gone by the time that the memory is written."""
    address = x.untyped_storage().data_ptr()
    return lambda: poke(address)


def storage_before(x):
    """A storage object that was there before the tensor."""
    storage = torch.UntypedStorage(x.nbytes)
    storage.fill_(0)
    x.set_(storage, 0, x.shape)
    return lambda: storage.fill_(0x42)


def storage_part(x):
    part = x.untyped_storage()[0:4]
    return lambda: part.fill_(0x42)


def storage_part_tensor(x):
    """Two storages over one memory."""
    alias = torch.tensor([]).set_(x.untyped_storage()[0:4], 0, (1,))
    return lambda: alias.fill_(100)


def data(x):
    alias = x.data
    return lambda: alias.fill_(100)


def set_(x):
    alias = torch.tensor([]).set_(x.untyped_storage())
    return lambda: alias.fill_(100)


def script(x):
    return lambda: SCRIPTED(x)


def script_function(x):
    return lambda: scripted(x)


def script_buffer(x):
    """The script holds what it writes: nobody gives it to the call."""
    holder = Holder()
    holder.register_buffer("held", x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(holder)


class Adds(torch.nn.Module):
    def forward(self, x):
        x.add_(100)


class Holder(torch.nn.Module):
    held: torch.Tensor

    def forward(self):
        self.held.add_(100)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecated, and in use
    SCRIPTED = torch.jit.script(Adds())

    @torch.jit.script
    def scripted(x):
        x.add_(100)



def library(x):
    return lambda: torch.ops.dycl_test_foreign.poke_(x)


LIBRARY = torch.library.Library("dycl_test_foreign", "DEF")
LIBRARY.define("poke_(Tensor(a!) x) -> ()")
LIBRARY.impl("poke_", lambda x: poke(x.data_ptr()), "CPU")

WAYS = [dlpack, capsule, array, interface, pointer, storage_fill, storage_copy, storage_item, storage_pointer,
        storage_pointer_taken, storage_before, storage_part, storage_part_tensor, data, set_, script, script_function,
        script_buffer, library]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("others", [0, 200])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_written_while_a_result_waits(way, others):
    """However many other tensors went the same way meanwhile."""

    def run(x, write):
        y = x + 1
        view = x[1:]
        z = view * 2
        write()
        return y, z, x + 1, view * 2

    results = []
    for function in run, dycl.accelerate(run):
        x = torch.zeros(3)
        write = way(x)
        kept = [torch.zeros(3) for _ in range(others)]
        writes = [way(k) for k in kept]
        results.append([[t.tolist() for t in function(x, write)] for _ in range(3)])
        del writes
    assert results[0] == results[1]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("make", [torch.zeros, lambda n: torch.nn.Parameter(torch.zeros(n), requires_grad=False)],
                         ids=["tensor", "parameter"])
def test_opened_and_written_in_the_call(way, make):
    pointed = way in (pointer, storage_pointer_taken) and isinstance(make(1), torch.nn.Parameter)

    def run(x):
        y = x + 1
        write = way(x)
        z = y if pointed else x * 2  # docs/correctness.md: a parameter, between its pointer and the write
        write()
        return y, z, x + 1

    results = []
    for function in run, dycl.accelerate(run):
        x = make(3)
        results.append([[t.tolist() for t in function(x)] for _ in range(3)])
    assert results[0] == results[1]


def segments(x):
    @dycl.accelerate
    def run(x):
        return (x + 1) * 2

    run(x)
    return dycl.stats(run)["segments"]


def test_a_storage_that_is_let_go_is_nobody_elses():
    x = torch.zeros(3)
    assert segments(x) == 1
    storage = x.untyped_storage()
    assert segments(x) == 2
    del storage
    assert segments(x) == 1
    address = x.data_ptr()
    assert address and segments(x) == 2


def test_a_new_storage_is_not_taken_for_one_that_died():
    for way in dlpack, pointer, storage_fill:
        for _ in range(300):  # torch's allocator gives the same addresses again and again
            x = torch.zeros(3)
            del x
            x = torch.zeros(3)
            assert segments(x) == 1
            way(x)
        gc.collect()


TWO_PROCESSES = """
import sys, torch, torch.distributed as dist, dycl
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.set_grad_enabled(False)
buffer = torch.zeros(3)

def run(buffer):
    results = []
    for i in range(4):
        if rank == 0:
            dist.send(torch.full((3,), float(i + 1)), 1)
        else:
            dist.recv(buffer, 0)
        results.append(buffer * 2)
        dist.all_reduce(buffer)
        results.append(buffer + 1)
        dist.broadcast(buffer, 0)
        results.append(buffer - 1)
        parts = [torch.zeros(3), torch.zeros(3)]
        results.append(parts[0] + parts[1])
        dist.all_gather(parts, buffer + rank)
        results.append(parts[0] * parts[1])
        results.append(buffer - rank)
        dist.group.WORLD.allreduce([buffer]).wait()
    return [r.tolist() for r in results]

want = run(torch.zeros(3))
program = dycl.accelerate(run)
for _ in range(3):
    got = program(torch.zeros(3))
    assert got == want, (rank, got, want)
assert dycl.stats(program)["recorded"] > 0
dist.destroy_process_group()
"""


def test_what_other_processes_send(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    processes = [subprocess.Popen([sys.executable, "-c", TWO_PROCESSES, str(rank), str(tmp_path / "store")],
                                  stderr=subprocess.PIPE, text=True) for rank in range(2)]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said


REPLACED = """
import torch
from torch.testing._internal import common_utils
import dycl

def run(x):
    y = x + 1
    write(x)
    return y.tolist()

write = torch.jit.CompilationUnit("def write(x: Tensor) -> Tensor:\\n    return x.add_(100)\\n").write
print(run(torch.zeros(2)) == dycl.accelerate(run)(torch.zeros(2)))
"""


def test_script_whose_calls_were_replaced():
    """torch.testing puts functions of Python in the place of TorchScript's calls."""
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", REPLACED], capture_output=True, text=True, check=True)
    assert said.stdout == "True\n", said.stdout
