"""What this machine can do in the same run, and what of it a workload needs: the limits that dycl's times are held
against.

Programs of many calls (generation) read their weights at every step: their limit is the time in which limit.c, the
fastest loop that we know, reads as many bytes. Large models called once are products and convolutions: their limit is
the sum of these, each on its shape by the fastest implementation at hand (MKL through torch, oneDNN through torch with
packed weights, dycl's own), repeated alone with its operands in the cache, so a model has to add nothing to reach it.
Both are measured in the same interleaved rounds as the peers.
"""

import ctypes
import mmap
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import time

HUGE = 2 << 20
LEAST_FLOP = 1e9  # a call with less is not a matter of its products
READ, PRODUCTS = "reading the weights", "products and convolutions alone"
UPDATED = "reading and writing what the optimizer must"


def library(directory):
    """limit.c, compiled for this machine. It needs the compiler that dycl's build needs."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "limit.c")
    target = os.path.join(directory, "limit.so")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
    if not shutil.which(compiler[0]):
        compiler = ["gcc" if shutil.which("gcc") else "cc"]
    subprocess.run([*compiler, "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-pthread", "-o",
                    target, source],
                   check=True, capture_output=True)
    found = ctypes.CDLL(target)
    for function in (found.limit_read, found.limit_update, found.limit_fma):
        function.restype = ctypes.c_double
    found.limit_read.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(ctypes.c_float)]
    found.limit_update.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_size_t, ctypes.c_int,
                                                           ctypes.POINTER(ctypes.c_float)]
    found.limit_fma.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(ctypes.c_float)]
    return found


def best(call, seconds):
    """Seconds that the fastest call takes."""
    call()
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found


class Machine:
    """The loops of limit.c on so many threads."""

    def __init__(self, threads):
        with tempfile.TemporaryDirectory() as directory:
            self.library = library(directory)
        self.threads = threads
        self.sum = ctypes.c_float()

    def read(self, tensor):
        """Reads all of it once; the seconds."""
        taken = self.library.limit_read(tensor.data_ptr(), tensor.numel(), self.threads, self.sum)
        if taken < 0:
            raise OSError(f"{self.threads} threads could not be started")
        return taken

    def update(self, gradient, *written):
        """Reads all four and writes three of them; the seconds."""
        places = [tensor.data_ptr() for tensor in (gradient, *written)]
        taken = self.library.limit_update(*places, gradient.numel(), self.threads, self.sum)
        if taken < 0:
            raise OSError(f"{self.threads} threads could not be started")
        return taken

    def multiply_adds(self, seconds):
        """Operations a second of multiply-adds in registers; a multiply-add is two."""
        rounds, found = 200_000, []
        end = time.perf_counter() + seconds
        while not found or time.perf_counter() < end:
            found.append(self.library.limit_fma(rounds, self.threads, self.sum))
        return rounds * self.threads * self.library.limit_fma_flop() / min(found)


def aligned(count):
    """count floats of memory that is there (zero pages would all be one), in huge pages where they can be had: small
    ones miss the TLB."""
    import torch

    memory = mmap.mmap(-1, 4 * count + HUGE)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError):  # a kernel without them
        pass
    whole = torch.frombuffer(memory, dtype=torch.float32, count=count + HUGE // 4)
    skipped = -(whole.data_ptr() // 4) % (HUGE // 4)
    return whole[skipped : skipped + count].fill_(1.0)


def work(program, model, inputs):
    """What a call is made of, as means over the inputs: bytes of weights read by each call of the model, products by
    shape."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    steps, products = [{}], {}
    aten = torch.ops.aten
    rows_only = (aten.embedding.default, aten.index_select.default, aten.index.Tensor, aten.gather.default)

    def product(key):
        products[key] = products.get(key, 0) + 1

    def experts(ends):
        """The part of a mixture's experts that have rows."""
        rows = torch.diff(ends, prepend=ends.new_zeros(1))
        return (rows > 0).double().mean().item()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if any(value.alias_info is not None for value in function._schema.returns):
                return result  # a view reads nothing
            for tensor in torch.utils._pytree.tree_leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() in weights:
                    read = result if function in rows_only else tensor
                    part = experts(args[2]) if function is aten._grouped_mm.default else 1
                    steps[-1][tensor.data_ptr(), read.shape] = part * read.numel() * read.element_size()
            if function in (aten.mm.default, aten.addmm.default):
                a, b = args[-2:]
                product(("mm", a.shape[0], a.shape[1], b.shape[1]))
            elif function in (aten.bmm.default, aten.baddbmm.default):
                a, b = args[-2:]
                product(("bmm", *a.shape, b.shape[2]))
            elif function is aten._scaled_dot_product_flash_attention_for_cpu.default:
                product(("attention", *args[0].shape[:2], args[0].shape[2], args[1].shape[2], args[0].shape[3],
                         args[2].shape[3]))
            elif function is aten.convolution.default and not args[6]:
                x, weight, _, stride, padding, dilation, _, _, groups = args
                product(("conv", tuple(x.shape), tuple(weight.shape), tuple(stride), tuple(padding), tuple(dilation),
                         groups))
            return result

    hook = model.register_forward_pre_hook(lambda module, inputs: steps.append({}))
    try:
        with Watch():
            for x in inputs:
                program(x)
    finally:
        hook.remove()
    found = [sum(step.values()) for step in steps if step]
    flop = sum(count * operations(key) for key, count in products.items()) / len(inputs)
    return {"bytes": sum(found) / len(inputs), "step_bytes": max(found, default=0), "steps": len(found) / len(inputs),
            "flop": flop,
            "products": [(key, count / len(inputs)) for key, count in products.items()]}


def operations(key):
    """Operations of a product; a multiply-add is two."""
    kind, *shape = key
    if kind == "mm":
        m, k, n = shape
        return 2 * m * k * n
    if kind == "bmm":
        b, m, k, n = shape
        return 2 * b * m * k * n
    if kind == "attention":
        b, h, m, n, k, v = shape
        return 2 * b * h * m * n * (k + v)
    x, weight, stride, padding, dilation, _ = shape
    found = 2 * x[0] * weight[0] * weight[1]
    for size, window, s, p, d in zip(x[2:], weight[2:], stride, padding, dilation):
        found *= window * ((size + 2 * p - d * (window - 1) - 1) // s + 1)
    return found


def implementations(key):
    """Callables that compute a product of this shape, by name; each has its operands ready, weights packed where it
    can."""
    import torch
    import torch.nn.functional as F

    import dycl

    kind, *shape = key
    found = {}
    if kind == "mm":
        m, k, n = shape
        x, out = torch.randn(m, k), torch.empty(m, n)
        linear = torch.nn.Linear(k, n, bias=False).eval()
        weight = linear.weight.detach()
        straight = weight.t().contiguous()
        found["MKL"] = lambda: torch.mm(x, weight.t(), out=out)
        found["MKL, weights transposed"] = lambda: torch.mm(x, straight, out=out)
        mkl = torch.ops.mkl._mkl_reorder_linear_weight(weight, m)
        found["MKL, packed"] = lambda: torch.ops.mkl._mkl_linear(x, mkl, weight, None, m)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, m)
        found["oneDNN, packed"] = lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
        ours = dycl.accelerate(linear)
        found["dycl"] = lambda: ours(x)
    elif kind == "bmm":
        b, m, k, n = shape
        x, y, out = torch.randn(b, m, k), torch.randn(b, k, n), torch.empty(b, m, n)
        z = torch.randn(b, n, k)
        found["MKL"] = lambda: torch.bmm(x, y, out=out)
        found["MKL, transposed"] = lambda: torch.bmm(x, z.transpose(1, 2), out=out)
    elif kind == "attention":
        b, h, m, n, k, v = shape
        q, keys, values = torch.randn(b, h, m, k), torch.randn(b, h, n, k), torch.randn(b, h, n, v)
        scores, out = torch.empty(b * h, m, n), torch.empty(b * h, m, v)

        def two_products():
            torch.bmm(q.view(b * h, m, k), keys.view(b * h, n, k).transpose(1, 2), out=scores)
            torch.bmm(scores, values.view(b * h, n, v), out=out)

        found["MKL, two products"] = two_products
        found["torch attention"] = lambda: F.scaled_dot_product_attention(q, keys, values)
        ours = dycl.accelerate(lambda a, b, c: F.scaled_dot_product_attention(a, b, c))
        found["dycl attention"] = lambda: ours(q, keys, values)
    else:
        xs, ws, stride, padding, dilation, groups = shape
        dimensions = len(ws) - 2
        make = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[dimensions - 1]
        conv = make(ws[1] * groups, ws[0], ws[2:], stride, padding, dilation, groups, bias=False).eval()
        x = torch.randn(xs)
        weight = conv.weight.detach()
        function = (F.conv1d, F.conv2d, F.conv3d)[dimensions - 1]
        found["oneDNN"] = lambda: function(x, weight, None, stride, padding, dilation, groups)
        last = x
        if dimensions == 2:
            last = x.contiguous(memory_format=torch.channels_last)
            packed = torch._C._nn.mkldnn_reorder_conv2d_weight(weight.to_mkldnn(), padding, stride, dilation, groups,
                                                               xs)
            found["oneDNN, packed, channels last"] = lambda: torch.ops.mkldnn._convolution_pointwise(
                last, packed, None, padding, stride, dilation, groups, "none", [], "")
        ours = dycl.accelerate(conv)
        found["dycl"] = lambda: ours(x)
        if dimensions == 2:
            found["dycl, channels last"] = lambda: ours(last)
    return found


class Job:
    """What the limit's process does in place of a peer's: see worker.Job."""

    def __init__(self, workload, peer, threads, saved):
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.threads = threads

    def machine(self):
        import torch

        loops = Machine(self.threads)
        a, b, out = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.empty(1024, 1024)
        gemm = 2 * 1024**3 / best(lambda: torch.mm(a, b, out=out), 1.0)
        big = aligned(128 * 1024 * 1024)
        read = big.numel() * 4 / min(loops.read(big) for _ in range(12))
        other = torch.empty_like(big)
        copy = big.numel() * 8 / best(lambda: other.copy_(big), 1.0)
        return {"fma_gflops": loops.multiply_adds(0.5) / 1e9, "gemm_gflops": gemm / 1e9, "read_gbytes": read / 1e9,
                "copy_gbytes": copy / 1e9}

    def first(self, needed):
        self.needed = needed
        if needed["kind"] == READ:
            loops, memory = Machine(self.threads), aligned(int(needed["step_bytes"]) // 4)
            self.once = lambda: loops.read(memory) * needed["bytes"] / (memory.numel() * 4)
            self.kinds = {"limit.c": needed["bytes"]}
        else:
            self.chosen = {}
            for key, count in needed["products"]:
                found = {}
                for name, call in implementations(key).items():
                    for _ in range(40):  # dycl tries its own ways in turn at first
                        call()
                    found[name] = (best(call, 0.03), call)
                name = min(found, key=lambda name: found[name][0])
                self.chosen[key] = (name, found[name][1], count)
            self.kinds = {}
            for key, (name, _, count) in self.chosen.items():
                self.kinds[name] = self.kinds.get(name, 0) + count * operations(key)
        return {"shares": self.kinds}

    def measure(self, warm, block, least):
        """As a peer's: nanoseconds that all of a call's limit takes, several times over."""
        times = []
        if self.needed["kind"] == READ:
            end = time.perf_counter() + block
            while time.perf_counter() < end or len(times) < least + 1:
                times.append(self.once() * 1e9)
            return {"ns": times[1:]}
        each = block / len(self.chosen)
        return {"ns": [1e9 * sum(best(call, each) * count for _, call, count in self.chosen.values())]}


def needed(work, many):
    """The limit that counts for a workload, or None: bytes for programs of many calls, products for large models."""
    if many:
        return {**work, "kind": READ}
    if work["flop"] >= LEAST_FLOP and work["products"]:
        return {**work, "kind": PRODUCTS}
    return None


def measure(threads):
    """The machine's figures: see Job.machine. Empty where they cannot be had."""
    from . import timing

    with tempfile.TemporaryDirectory(prefix="dycl-bench-") as directory:
        try:
            process = timing.Worker("machine", "limit", threads, None, directory, 120)
            try:
                return process.ask("machine")
            finally:
                process.stop()
        except timing.Lost as lost:
            return {"error": str(lost)}
