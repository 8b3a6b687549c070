"""Weights are packed, once, and every way of writing to them is noticed."""

import copy
import ctypes
import gc

import pytest
import torch
from torch import nn

import dycl


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 600), nn.Tanh(), nn.Linear(600, 512)).eval()


def conv():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 1)).eval()


CASES = {"linear": (model, (32, 512)), "conv": (conv, (2, 16, 12, 12))}


def numpy_write(p):
    p.detach().numpy()[0] = 3.0


def storage_write(p):
    p.untyped_storage().copy_(torch.full_like(p, 0.25).untyped_storage())


def pointer_write(p):
    ctypes.c_float.from_address(p.data_ptr()).value = 7.0


def earlier_pointer_write(p):
    ctypes.c_float.from_address(earlier[0]).value += 7.0


def kept_alias(p):
    alias = p.data
    gc.collect()
    alias[0] = 2.0
    return alias


earlier = []  # addresses that a library kept, from before anybody looked
WRITES = {
    "in place": lambda p: p.mul_(0.5),
    "data in place": lambda p: p.data.mul_(0.5),
    "data replaced": lambda p: setattr(p, "data", torch.ones_like(p)),
    "copy": lambda p: p.copy_(torch.ones_like(p)),
    "detach": lambda p: p.detach().zero_(),
    "view": lambda p: p.view(-1)[:8].fill_(1.0),
    "numpy": numpy_write,
    "storage": storage_write,
    "pointer": pointer_write,
    "earlier pointer": earlier_pointer_write,
    "kept alias": kept_alias,
    "set": lambda p: p.set_(torch.full_like(p, 0.1)),
}


def packed(accelerated):
    return dycl.stats(accelerated)["packed_bytes"]  # of the whole process


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("write", WRITES)
def test_writes_are_noticed(case, write):
    make, shape = CASES[case]
    m, x = make(), torch.randn(shape)
    earlier[:] = [m[0].weight.data_ptr()]
    dycl.accelerate(m)
    with torch.no_grad():
        before = packed(m)
        for _ in range(4):
            m(x)
        assert packed(m) > before, "nothing was packed: this test would not see anything"
        kept = None
        for round in range(3):
            kept = WRITES[write](m[0].weight), kept
            for _ in range(3):
                got = m(x)
                with dycl.disable():
                    expected = m(x)
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4, msg=f"{write}, round {round}")


@pytest.mark.parametrize("case", CASES)
def test_packed_memory_goes_with_the_model(case):
    make, shape = CASES[case]
    x = torch.randn(shape)
    sizes = []
    for _ in range(6):
        m = make()
        dycl.accelerate(m)
        with torch.no_grad():
            for _ in range(4):
                m(x)
        sizes.append(packed(m))
        del m
        gc.collect()
        sizes.append(packed(dycl.accelerate(nn.Identity())))
    assert sizes[-1] <= sizes[1], sizes


def test_shared_weights_are_not_packed_but_right():
    flat = torch.randn(2 * 512 * 512)
    a, b = nn.Linear(512, 512, bias=False), nn.Linear(512, 512, bias=False)
    a.weight = nn.Parameter(flat[: 512 * 512].view(512, 512), requires_grad=False)
    b.weight = nn.Parameter(flat[512 * 512 :].view(512, 512), requires_grad=False)
    m = dycl.accelerate(nn.Sequential(a, b))
    x = torch.randn(32, 512)
    with torch.no_grad():
        for _ in range(3):
            m(x)
        flat.mul_(0.5)
        got = m(x)
        with dycl.disable():
            torch.testing.assert_close(got, m(x), rtol=1e-4, atol=1e-2)


# panels for two threads, a last one that is not full, one thread more than the other
@pytest.mark.parametrize("columns", (1024, 1021, 545))
@pytest.mark.parametrize("rows", (1, 2))
def test_few_rows_and_large_weights_are_shared_by_threads(rows, columns):
    torch.manual_seed(0)
    linear = nn.Linear(250, columns).eval()
    target = dycl.accelerate(nn.Sequential(linear))
    threads = torch.get_num_threads()
    try:
        for count in (2, 3, 1):
            torch.set_num_threads(count)
            with torch.no_grad():
                for _ in range(4):
                    x = torch.randn(rows, 250)
                    torch.testing.assert_close(target(x), linear(x), rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(threads)
    assert "small product" in dycl.explain(target)


@pytest.mark.parametrize("layers", [3, 20])  # fewer and more than the packed forms that a step keeps at hand
def test_equal_layers_share_a_plan_with_their_own_weights(layers):
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(layers))
            self.linears = nn.ModuleList(nn.Linear(64, 64) for _ in range(layers))

        def forward(self, x):
            for conv, linear in zip(self.convs, self.linears):
                x = torch.tanh(conv(x))
                x = torch.tanh(linear(x.reshape(-1, 64))).reshape(x.shape)
                float(x[0, 0, 0, 0])  # each layer is a segment, the same one
            return x

    model, x = Stack().eval(), torch.randn(1, 16, 16, 16)
    lazy = dycl.accelerate(copy.deepcopy(model))
    with torch.no_grad():
        for call in range(12):
            if call in (5, 9):  # a write: the packed form of this layer alone is stale
                for m in (model, lazy):
                    m.convs[1].weight.mul_(1.5)
                    m.linears[2].weight.sub_(0.25)
            # up to forty products, each within the bound of one (tolerance.py)
            torch.testing.assert_close(lazy(x), model(x), rtol=1e-4, atol=1e-4)
    assert "segment 1: " in dycl.explain(lazy)
