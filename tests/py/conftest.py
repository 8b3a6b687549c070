"""Tests never reach for the network, and every test starts from the same state of dycl and torch."""

import gc
import os
import signal
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

# a test of dycl must run in dycl, however small; test_choose.py sets it itself
os.environ.setdefault("DYCL_CHOOSE", "0")
# no test depends on what an earlier process measured, or writes to the user's cache
os.environ.setdefault("DYCL_PROFILE", "0")
# Several processes of tests share the processors, each with a team of as many threads: those that wait for their team
# would keep the others from running, ten times as long. What is said of threads is asked without it (test_teams.py).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background was born with it ignored

import pytest

pytest.register_assert_rewrite("suite")
import torch


# MKL's vector functions choose their kernels at the first call, and two threads that make it at once get one of low
# accuracy now and then: torch's own exp of 4200 elements was off by 1.5e-4 in 1 of 600 fresh processes. So the first
# call is made by one thread.
for function in "acos asin atan cos erf erfc erfinv exp expm1 log log10 log1p log2 sin sqrt tan tanh".split():
    for dtype in (torch.float32, torch.float64):
        getattr(torch, function)(torch.full((1,), 0.5, dtype=dtype))

# torch.manual_seed keeps a seed for each kind of device that may come later, and the whole stack as text beside it:
# 2 ms a call below pytest, half the time of test_op_db. No device comes.
for device in (torch.cuda, torch.xpu, getattr(torch, "mtia", None)):
    if hasattr(device, "traceback"):
        device.traceback = types.SimpleNamespace(format_stack=list)


@pytest.fixture(scope="module", autouse=True)
def what_was_before_is_no_garbage():
    """What imports, collected tests and earlier modules left is looked at once a module: each test's `gc.collect()`
    sees only what came since the one before."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_left_behind():
    torch.manual_seed(0)
    yield
    assert torch._C._len_torch_function_stack() == 0, "a torch function mode stayed on the stack"
    assert not torch.is_inference_mode_enabled()
    torch.set_grad_enabled(True)
    gc.collect()  # what a test leaves in cycles is finalized here, not in another test
    gc.freeze()  # what is still there is held by something, and need not be looked at behind each test that follows
