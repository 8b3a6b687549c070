"""Views that show elements several times, with a history: windows of ``unfold``, ``as_strided``, views of them. Shapes,
dimensions, layouts and uses are drawn; gradients are eager's, also where they are differentiated, and lie as eager's.
"""

import random

import pytest
import torch

import dycl
from suite import one_thread  # noqa: F401 (a fixture)


def drawn(r):
    sizes = [r.randint(2, 7) for _ in range(r.randint(1, 4))]
    x = torch.randn(sizes, dtype=r.choice([torch.float32, torch.float64]))
    kind = r.choice(["plain", "plain", "turned", "stepped", "narrow"])
    if kind == "turned":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if kind == "stepped":
        return torch.stack([x, x], -1)[..., 1]
    return torch.cat([x, x], -1).narrow(-1, 1, x.shape[-1]) if kind == "narrow" else x


def window(r, shape):
    dim = r.randrange(len(shape))
    size = r.randint(1, shape[dim])
    return r.choice([dim, dim - len(shape)]), size, r.randint(1, 3)


def unfolded(r, x):
    dim, size, step = window(r, x.shape)
    return lambda x: x.unfold(dim, size, step)


def strided(r, x):
    while True:
        rank = r.randint(0, 4)
        sizes, strides = [r.randint(1, 4) for _ in range(rank)], [r.randint(0, 4) for _ in range(rank)]
        reach = 1 + sum((n - 1) * k for n, k in zip(sizes, strides))
        if reach <= x.numel():
            return lambda x: (x * 1).as_strided(sizes, strides, x.numel() - reach)


def nested(r, x):
    first = window(r, x.shape)
    second = window(r, x.unfold(*first).shape)
    return lambda x: x.unfold(*first).unfold(*second)


def turned(r, x):
    first = window(r, x.shape)
    a, b = r.randrange(x.ndim + 1), r.randrange(x.ndim + 1)
    return lambda x: x.unfold(*first).transpose(a, b)


def within(r, x):  # a part of it
    first = window(r, x.shape)
    dim = r.randrange(x.ndim + 1)
    return lambda x: x.unfold(*first).select(dim, 0)


def behind(r, x):  # of a part of another
    dim = r.randrange(x.ndim)
    rest = window(r, x.narrow(dim, 1, x.shape[dim] - 1).shape)
    return lambda x: x.narrow(dim, 1, x.shape[dim] - 1).unfold(*rest)


def several(r, x):
    first, second = window(r, x.shape), window(r, x.shape)
    return lambda x: x.unfold(*first).cos().mean() * x.unfold(*second) + x.mean()


def meshed(r, x):
    first = window(r, x.shape)
    return lambda x: x.unfold(*first) @ torch.ones(first[1], 2, dtype=x.dtype)


PARTS = [unfolded, strided, nested, turned, within, behind, several, meshed]
LEFT = {"strided", "turned", "within"}  # torch's: what is not known to go back alike, and views of windows


def outcome(program, x, twice):
    x = x.detach().requires_grad_()
    result = program(x)
    g = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view(result.shape)
    gradients = torch.autograd.grad(result, x, g, create_graph=twice)
    if twice and gradients[0].requires_grad:
        gradients += torch.autograd.grad(gradients[0].square().sum(), x)
    return [result.detach(), *(t.detach() for t in gradients)]


@pytest.mark.parametrize("part", PARTS)
def test_as_eager(part):
    for seed in range(40):
        r = random.Random(f"{part.__name__} {seed}")
        torch.manual_seed(seed)
        x = drawn(r)
        view, way = part(r, x), r.choice(["plain", "between", "behind", "returned"])

        def program(x, view=view, way=way):
            y = view(x.tanh() if way == "between" else x)
            return y if way == "returned" else y * 2 if way == "plain" else y.sin() * y

        run, twice = dycl.accelerate(program), seed % 4 == 3
        want = outcome(program, x, twice)
        for nth in range(3):
            got = outcome(run, x, twice)
            for i, (a, b) in enumerate(zip(want, got, strict=True)):
                what = f"{part.__name__}, seed {seed}, run {nth}, {i}, {way}: {tuple(x.shape)} {x.stride()}"
                torch.testing.assert_close(b, a, rtol=1e-4, atol=2e-5 * (1 + a.abs().max().item()),
                                           msg=lambda m, what=what: f"{what}: {m}")
                assert a.stride() == b.stride() or i == 2 or way == "between", what
        stats = dycl.stats(run)
        assert stats["replays"] == 0, (part.__name__, seed, dycl.explain(run))
        assert twice or stats["backward_replays"] == 0, (part.__name__, seed, dycl.explain(run))
        assert part.__name__ in LEFT or not stats["bails"].get("grad"), (part.__name__, seed, dycl.explain(run))
