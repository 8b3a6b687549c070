"""What this machine can do in the same run: f32 matrix products and reading memory, through torch."""

import multiprocessing
import os


def body(connection, threads):
    import time

    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)

    def best(call, seconds):
        call()
        found, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            call()
            found = min(found, time.perf_counter() - start)
        return found

    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    out = torch.empty(1024, 1024)
    gemm = 2 * 1024**3 / best(lambda: torch.mm(a, b, out=out), 1.5) / 1e9
    big = torch.ones(64 * 1024 * 1024)  # 256 MiB: no cache holds it
    read = big.numel() * 4 / best(lambda: big.sum(), 1.0) / 1e9
    other = torch.empty_like(big)
    copy = big.numel() * 8 / best(lambda: other.copy_(big), 1.0) / 1e9
    connection.send({"gemm_gflops": gemm, "read_gbytes": read, "copy_gbytes": copy})


def measure(threads):
    """GFLOP/s of a 1024-cube matrix product, GB/s of summing 256 MiB, GB/s (read and written) of copying it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    process = context.Process(target=body, args=(theirs, threads), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(120) else {}
    except EOFError:
        return {}
    finally:
        process.join(5)
        if process.is_alive():
            process.kill()
