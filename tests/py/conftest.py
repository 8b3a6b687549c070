"""Tests never reach for the network, and every test starts from the same state of dycl and torch."""

import gc
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

os.environ.setdefault("DYCL_CHOOSE", "0")  # a test of dycl must run in dycl, however small; test_choose.py sets it itself
os.environ.setdefault("DYCL_PROFILE", "0")  # no test depends on what an earlier process measured, or writes to the user's cache

import pytest

pytest.register_assert_rewrite("suite")
import torch


@pytest.fixture(scope="session", autouse=True)
def imports_are_no_garbage():
    """What importing and collecting the tests made lives for ever: each test's `gc.collect()` looks only at what came since."""
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
