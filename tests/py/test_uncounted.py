"""Writes to weights that torch does not count in `_version`: what was made of the weights before is not used any
more."""

import copy
import weakref

import pytest
import torch
import torch.multiprocessing
from torch import nn

import dycl


def network(width=256):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def check(write, rows=16, model=None):
    """Weights that were packed, written by write(model), packed again, written again; results are eager's, and
    `_version` is."""
    model = network() if model is None else model
    fast, x = dycl.accelerate(copy.deepcopy(model)), torch.randn(rows, 256)
    with torch.no_grad():
        for _ in range(3):
            for _ in range(5):
                fast(x)
            versions = [[p._version for p in m.parameters()] for m in (model, fast)]
            write(model)
            write(fast)
            counted = [[p._version - v for p, v in zip(m.parameters(), before)]
                       for m, before in zip((model, fast), versions)]
            assert counted[0] == counted[1]
            for _ in range(3):
                torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    return fast


@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_fused_optimizers(name, rows):
    optimizers = {}

    def step(model):
        if model not in optimizers:
            optimizers[model] = getattr(torch.optim, name)(model.parameters(), lr=0.01, fused=True)
        torch.manual_seed(1)
        with torch.enable_grad(), dycl.disable():
            model(torch.randn(8, 256)).square().mean().backward()
        optimizers[model].step()
        optimizers[model].zero_grad()

    check(step, rows)


def keeping_the_counter(w):
    with torch.autograd._unsafe_preserve_version_counter(w):
        w[3, 4] = 9


WRITES = {
    "apply_": lambda w: w.apply_(lambda v: v + 1),
    "map_": lambda w: w.map_(w.clone(), lambda a, b: a + b),
    "map2_": lambda w: w.map2_(w.clone(), w.clone(), lambda a, b, c: a + b - c / 2),
    "unscale": lambda w: torch._amp_foreach_non_finite_check_and_unscale_([w], torch.zeros(1), torch.tensor(0.5)),
    "unsafe_chunk": lambda w: w.unsafe_chunk(2)[0][3, 4].fill_(9),
    "unsafe_split": lambda w: torch.unsafe_split(w, 128)[0][3, 4].fill_(9),
    "unsafe_split_with_sizes": lambda w: w.unsafe_split_with_sizes([64, 192])[1][3, 4].fill_(9),
    "a counter that is put back": keeping_the_counter,
    "unknown operator": lambda w: torch.ops.aten._fused_sgd_([w], [torch.ones_like(w)], [], weight_decay=0.0,
                                                             momentum=0.0, lr=0.5, dampening=0.0, nesterov=False,
                                                              maximize=False, is_first_step=True),
}


@pytest.mark.parametrize("name", WRITES)
def test_operators(name):
    check(lambda model: WRITES[name](model[0].weight.detach().requires_grad_(False)),
          model=network().requires_grad_(False))


def test_memory_under_a_second_version():
    def through_data(model):
        other = nn.Linear(256, 256)
        other.weight.data = model[0].weight
        other.weight.add_(1)

    def through_set(model):
        torch.empty(0).set_(model[0].weight.detach()).mul_(0.5)

    check(through_data)
    check(through_set)


def halve(model):
    torch.set_num_threads(1)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.5)


def test_memory_of_several_processes():
    def elsewhere(model):
        process = torch.multiprocessing.get_context("fork").Process(target=halve, args=(model,))
        process.start()
        process.join(60)
        assert process.exitcode == 0

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model, x = network().share_memory(), torch.randn(4, 256)
        fast = dycl.accelerate(model)
        before = dycl.stats(fast)["packed_bytes"]  # of models that other tests left
        with torch.no_grad():
            for _ in range(3):
                for _ in range(5):
                    fast(x)
                elsewhere(model)
                with dycl.disable():
                    want = model(x)
                torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
        assert dycl.stats(fast)["packed_bytes"] <= before
    finally:
        torch.set_num_threads(threads)


def test_parameters_have_no_weak_references_of_ours():
    fast, x = dycl.accelerate(network()), torch.randn(16, 256)
    with torch.no_grad():
        for _ in range(5):
            fast(x)
        weight = fast[0].weight
        assert dycl.stats(fast)["packed_bytes"] > 0
        assert weakref.getweakrefs(weight) == [] and weakref.getweakrefcount(weight) == 0
        mine = weakref.ref(weight)
        assert weakref.getweakrefs(weight) == [mine] and weakref.getweakrefcount(weight) == 1
        del mine
        torch.utils.swap_tensors(weight, nn.Parameter(weight * 0.5))
        with dycl.disable():
            want = fast(x)
        for _ in range(3):
            torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
