"""Gradients that are clipped without torch's Python (csrc/py/entry/clip.h), against torch's own functions: values,
versions, identities, warnings and errors, for lists of gradients and arguments that nobody picked by hand."""

import math
import random
import warnings

import pytest
import torch
from torch import nn
from torch.nn import utils

import dycl
from dycl import _core

FUNCTIONS = {"norm": utils.clip_grad_norm_, "value": utils.clip_grad_value_}


@pytest.fixture(autouse=True)
def watched():
    dycl.accelerate(nn.Linear(1, 1))
    yield
    _core.optimizers_changed(False)


def run(function, params, ours, *args, **kwargs):
    """What a call shows: its result or error, its warnings, and all gradients with their versions."""
    _core.optimizers_changed(ours)  # all parameters count
    held = [p.grad for p in params]
    before = _core.info()["clipped"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            result = (type(error), str(error))
    _core.optimizers_changed(False)
    assert all(p.grad is g for p, g in zip(params, held))
    versions = [g if g is None or g.is_inference() else g._version for g in held]
    told = [(w.category, str(w.message)) for w in said]
    return result, held, versions, told, _core.info()["clipped"] - before


def same(eager, ours):
    """Up to some roundings of a norm: what is left over of a vector torch's compiler adds up as it likes."""
    assert type(eager[0]) is type(ours[0]) and eager[2:4] == ours[2:4]
    pairs = list(zip(eager[1], ours[1]))
    if isinstance(eager[0], torch.Tensor):
        pairs.append((eager[0], ours[0]))
        assert eager[0].requires_grad == ours[0].requires_grad and eager[0]._version == ours[0]._version
    else:
        assert eager[0] == ours[0]
    for e, o in pairs:
        assert (e is None) == (o is None)
        if e is not None:
            assert e.stride() == o.stride()
            torch.testing.assert_close(o, e, rtol=1e-6, atol=0, equal_nan=True)


def gradient(rng, kind):
    shape = [rng.choice([1, 2, 3, 7, 16, 65]) for _ in range(rng.randrange(4))]
    g = torch.randn(shape) * rng.choice([1e-3, 1.0, 50.0])
    if kind == "large":
        g = torch.randn(rng.choice([4095, 4096, 4097, 70_000]))
    elif kind == "transposed":
        g = torch.randn(7, 5).t()
    elif kind == "channels last":
        g = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    elif kind == "gaps":
        g = torch.randn(6, 8)[:, ::2]
    elif kind == "expanded":
        g = torch.randn(3, 1).expand(3, 4)
    elif kind == "empty":
        g = torch.empty(0, 3)
    elif kind == "zeros":
        g = torch.zeros(5, 2)
    elif kind == "odd values":
        g.view(-1)[:1] = rng.choice([math.nan, math.inf, -math.inf, 1e30, -1e19, 1e-30, 1e-42, -0.0])
    elif kind == "tiny":
        g = torch.randn(4) * 1e-25
    elif kind == "double":
        g = g.double()
    elif kind == "half":
        g = g.bfloat16()
    elif kind == "with a history":
        g = g.requires_grad_() * 1
    return g


ORDINARY = ["", "", "", "large", "transposed", "channels last", "empty", "zeros", "none"]
ODD = ["gaps", "expanded", "odd values", "tiny", "double", "half", "with a history"]


def parameters(seed, odd):
    """Made anew, with equal gradients, by each call."""
    rng, made = random.Random(seed), []
    kinds = [rng.choice(ORDINARY) for _ in range(rng.randrange(1, 9))]
    if odd:
        kinds.insert(rng.randrange(len(kinds) + 1), rng.choice(ODD))
    for kind in kinds:
        torch.manual_seed(rng.randrange(1 << 30))
        g = gradient(rng, kind)
        made.append(nn.Parameter(torch.empty(g.shape, dtype=g.dtype)))
        made[-1].grad = None if kind == "none" else g
    if odd and rng.random() < 0.3:
        made.append(rng.choice(made))  # tied weights, listed twice
    return made


@pytest.mark.parametrize("what", FUNCTIONS)
@pytest.mark.parametrize("threads", [1, 2])
def test_ordinary_gradients(what, threads):
    rng, before = random.Random(threads), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(60):
            limit = rng.choice([0.01, 0.5, 1, 1000.0])
            more = rng.choice([{}, {}, {"foreach": True}, {"foreach": False}])
            sides = [parameters(seed, odd=False) for _ in range(2)]
            eager, ours = (run(FUNCTIONS[what], side, side is sides[1], side, limit, **more) for side in sides)
            same(eager, ours)
            assert eager[4] == 0 and ours[4] == any(p.grad is not None for p in sides[1])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("what", FUNCTIONS)
def test_odd_gradients(what):
    rng = random.Random(5)
    for seed in range(150):
        limit = rng.choice([0.1, 2.0, 1e6])
        sides = [parameters(seed, odd=True) for _ in range(2)]
        same(*(run(FUNCTIONS[what], side, side is sides[1], side, limit) for side in sides))


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-18, 1e-15, 1e-10, 1e10, 1e13, 1e17, 1e20, 1e30])
def test_gradients_of_any_size(scale):
    seen = []
    for ours in (False, True):
        torch.manual_seed(0)
        params = [nn.Parameter(torch.empty(n)) for n in (3, 40, 5000)]
        for p in params:
            p.grad = torch.randn_like(p) * scale
        seen.append(run(utils.clip_grad_norm_, params, ours, params, 1e-12))
    same(*seen)


def test_norms_of_long_gradients():
    """Their sums are off by up to 1e-4: whoever adds up in another order clips by another factor."""
    for shapes in ([(1_000_003,)], [(512, 256, 3, 3), (512,)], [(300, 401), (7,), (128, 64, 5)]):
        seen = []
        for ours in (False, True):
            torch.manual_seed(0)
            params = [nn.Parameter(torch.empty(shape)) for shape in shapes]
            for p in params:
                p.grad = torch.rand_like(p).to(memory_format=torch.channels_last if p.dim() == 4 else
                                               torch.preserve_format)
            seen.append(run(utils.clip_grad_norm_, params, ours, params, 0.5))
        assert seen[1][4] == 1
        for e, o in zip([seen[0][0], *seen[0][1]], [seen[1][0], *seen[1][1]]):
            torch.testing.assert_close(o, e, rtol=5e-7, atol=0)


ARGUMENTS = [
    ((1.0,), {}), ((1,), {}), ((), {"max_norm": 0.5}), ((0.5, 2), {}), ((0.5, 2.0), {}), ((0.5, 1), {}),
    ((0.5,), {"norm_type": math.inf}), ((0.5,), {"norm_type": "inf"}), ((0.5, 0), {}), ((0.0,), {}), ((-1.0,), {}),
    ((math.inf,), {}), ((math.nan,), {}), (("1.0",), {}), ((True,), {}), ((torch.tensor(0.5),), {}), ((None,), {}),
    ((1e300,), {}), ((1e-60,), {}), ((10 ** 400,), {}), ((), {}), ((0.5, 2.0, True), {}), ((0.5, 2.0, False, None), {}),
    ((0.5, 2.0, False, None, 1), {}), ((0.5,), {"what": 1}), ((0.5,), {"max_norm": 1}), ((0.5,), {"foreach": 0}),
    ((0.5,), {"error_if_nonfinite": True}), ((0.5,), {"error_if_nonfinite": 0}),
]


@pytest.mark.parametrize("args, kwargs", ARGUMENTS)
@pytest.mark.parametrize("values", [1.0, math.inf, math.nan])
def test_arguments(args, kwargs, values):
    for what, function in FUNCTIONS.items():
        seen = []
        for ours in (False, True):
            params = [nn.Parameter(torch.ones(3, 2)) for _ in range(3)]
            for k, p in enumerate(params):
                p.grad = torch.full((3, 2), values + k)
            named = {"clip_value" if name == "max_norm" and what == "value" else name: x for name, x in kwargs.items()}
            seen.append(run(function, params, ours, params, *args, **named))
        same(*seen)


def test_parameters_of_any_kind():
    ways = [list, tuple, iter, lambda ps: (p for p in ps), lambda ps: filter(lambda p: p.requires_grad, ps),
            lambda ps: ps[0], lambda ps: [], lambda ps: (p for p in ()), lambda ps: iter(()), lambda ps: [None],
            lambda ps: [p.grad for p in ps], lambda ps: dict(enumerate(ps)).values(), lambda ps: 3,
            lambda ps: nn.ParameterList(ps), lambda ps: nn.ParameterList(ps).parameters(), lambda ps: [*ps, "p"],
            lambda ps: [ps[0] * 1], lambda ps: [ps[0].detach()], lambda ps: [torch.ones(2)], failing]
    for way in ways:
        for function in FUNCTIONS.values():
            seen = []
            for ours in (False, True):
                params = [nn.Parameter(torch.ones(3, 2)) for _ in range(3)]
                for p in params:
                    p.grad = torch.ones(3, 2)
                seen.append(run(function, params, ours, way(params), 0.25))
            same(*seen)


def failing(params):
    yield params[0]
    raise ValueError("no more parameters")


def test_gradients_that_share_memory():
    for overlap in (0, 2):
        seen = []
        for ours in (False, True):
            block, params = torch.randn(40, generator=torch.Generator().manual_seed(0)), []
            for k in range(3):
                params.append(nn.Parameter(torch.empty(12)))
                params[-1].grad = block[(12 - overlap) * k:(12 - overlap) * k + 12]
            seen.append(run(utils.clip_grad_norm_, params, ours, params, 0.5))
        same(*seen)
        assert seen[1][4] == (overlap == 0)


def test_what_was_put_in_the_place_of_torch_runs():
    params = [nn.Parameter(torch.ones(2))]
    params[0].grad = torch.ones(2)
    module, calls = __import__("sys").modules["torch.nn.utils.clip_grad"], []
    original = module._get_total_norm
    try:
        module._get_total_norm = lambda *args: calls.append(args) or original(*args)
        assert run(utils.clip_grad_norm_, params, True, params, 0.5)[4] == 0 and calls
    finally:
        module._get_total_norm = original
    assert run(utils.clip_grad_norm_, params, True, params, 0.5)[4] == 1


def test_denormals_that_are_flushed():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush them")
    try:
        params = [nn.Parameter(torch.ones(2))]
        params[0].grad = torch.full((2,), 1e-40)
        assert run(utils.clip_grad_norm_, params, True, params, 0.5)[4] == 0
        assert not params[0].grad.any()
    finally:
        torch.set_flush_denormal(False)


def test_only_what_was_accelerated():
    for accelerated in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        if accelerated:
            model = dycl.accelerate(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before, norms = _core.info()["clipped"], []
        for k in range(4):
            optimizer.zero_grad()
            model(torch.ones(3, 4) * k).square().sum().backward()
            norms.append(utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
        assert _core.info()["clipped"] - before == (4 if accelerated else 0)
        if accelerated:
            assert norms == pytest.approx(expected, rel=1e-5)
        expected = norms


def test_in_a_step_that_is_accelerated():
    losses = []
    for accelerated in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            norm = utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss.item(), (norm * 2).item()

        before = _core.info()["clipped"]
        call = dycl.accelerate(step) if accelerated else step
        losses.append([call(torch.ones(3, 4) * k) for k in range(5)])
        assert _core.info()["clipped"] - before == (5 if accelerated else 0)
    for e, o in zip(*losses):
        assert o == pytest.approx(e, rel=1e-5)
