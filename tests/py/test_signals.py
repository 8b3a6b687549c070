"""Signals while kernels run: a handler must not damage anything, and Ctrl-C ends the program as in eager."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROLOGUE = """
import os, signal, sys, time
import torch, dycl
torch.set_grad_enabled(False)
torch.set_num_threads(int(os.environ["THREADS"]))
a = torch.randn(700, 700) / 15

def chain(x, n, every=10):
    for i in range(n):
        x = torch.tanh(x @ a)
        if i % every == every - 1 and float(x[0, 0]) > 2:  # the end of a segment
            break
    return x

fast = dycl.accelerate(chain)
fast(a, 3), fast(a, 3)
"""

# oneDNN's sgemm moves the stack pointer into the heap; without a signal stack this ends in glibc's "corrupted size vs.
# prev_size".
HANDLERS = PROLOGUE + """
hits = 0
def handler(number, frame):
    global hits
    hits += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
fast(a, 100)
signal.setitimer(signal.ITIMER_REAL, 0)
assert hits > 5, hits
torch.testing.assert_close(fast(a, 5), chain(a, 5), rtol=1e-4, atol=1e-4)
"""

INTERRUPTED = PROLOGUE + """
begin = time.monotonic()
fast(a, 40)
n = int(30 * 40 / (time.monotonic() - begin))  # thirty seconds, if nobody interrupts
print("ready", flush=True)
begin = time.monotonic()
try:
    fast(a, n)
except KeyboardInterrupt as error:
    took = time.monotonic() - begin
    frame = error.__traceback__.tb_next.tb_frame
    assert frame.f_code.co_name == "chain", frame
    assert type(frame.f_locals["x"]) is torch.Tensor and frame.f_locals["x"].isfinite().all()
else:
    raise SystemExit("not interrupted")
assert torch._C._len_torch_function_stack() == 0
torch.testing.assert_close(fast(a, 5), chain(a, 5), rtol=1e-4, atol=1e-4)
print(f"took {took:.1f}")
"""


def environment(threads):
    return os.environ | {"DYCL_CHOOSE": "0", "THREADS": str(threads), "MALLOC_CHECK_": "3"}


@pytest.mark.parametrize("threads", [1, 2])
def test_handlers_run_on_a_stack_of_their_own(threads):
    done = subprocess.run([sys.executable, "-c", HANDLERS], env=environment(threads), capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", [INTERRUPTED, INTERRUPTED.replace("every=10", "every=10**9")],
                         ids=["fetches", "no fetch"])
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_in_a_long_call(threads, source):
    process = subprocess.Popen([sys.executable, "-c", source], env=environment(threads), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n", process.communicate()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert float(out.split()[-1]) < 15, out  # of thirty: promptly, with room for a busy machine
