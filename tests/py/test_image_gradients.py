"""Gradients of what works on images, volumes and rows of samples: resampling, padding, pools, convolutions of one and
three dimensions, norms of instances and groups, elements in other places, dropout of features. Shapes, layouts, special
values and what needs a gradient are drawn; results, gradients, names of nodes, strides and gradients of gradients are
compared with eager's. The segment goes on through each of them: nothing is left to torch."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

INF, NAN = float("inf"), float("nan")


def conv(kind, *args, **kwargs):
    def made(r, rank):
        return getattr(nn, f"{kind}{rank}d")(4, 6, *args, **kwargs)

    return made


def resized(mode, **kwargs):
    def made(r, rank):
        options = dict(kwargs)
        if r.random() < 0.5:
            options["size"] = [r.randint(2, 9) for _ in range(rank)]
        else:
            options["scale_factor"] = r.choice([2, 0.5, 1.7, [r.choice([1.5, 2.0]) for _ in range(rank)]])
        if mode in ("linear", "bilinear", "trilinear", "bicubic"):
            options["align_corners"] = r.random() < 0.5
        return lambda x: F.interpolate(x, mode=mode, **options)

    return made


def padded(mode):
    def made(r, rank):
        pad = [r.randint(0, 2) for _ in range(2 * rank)]
        return lambda x: F.pad(x, pad, mode=mode)

    return made


def pooled(name, **kwargs):
    def made(r, rank):
        if "adaptive" in name:
            size = r.choice([1, 2, [r.randint(1, 3) for _ in range(rank)]])
            return lambda x: getattr(F, f"{name}{rank}d")(x, size)
        options = dict(kwargs, stride=r.choice([None, 1, 2]), padding=r.choice([0, 1]), ceil_mode=r.random() < 0.5)
        return lambda x: getattr(F, f"{name}{rank}d")(x, r_kernel(rank), **options)

    def r_kernel(rank):
        return [2, 3, 2][:rank]

    return made


def sampled(r, rank):
    mode, align = r.choice(["bilinear", "nearest", *(["bicubic"] if rank == 2 else [])]), r.random() < 0.5
    padding = r.choice(["zeros", "border", "reflection"])

    def f(x):
        grid = torch.stack([x.mean(1).tanh() * (i + 1) / rank for i in range(rank)], -1)
        return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=align)

    return f


def placed(r, rank):
    align = r.random() < 0.5

    def f(x):
        theta = x.flatten(1)[:, : rank * (rank + 1)].reshape(-1, rank, rank + 1)
        return F.affine_grid(theta, [len(x), 3, *[5, 4, 3][:rank]], align_corners=align)

    return f


def norm(module):
    return lambda r, rank: module(rank)


def function(f):
    return lambda r, rank: f


PARTS = {  # name: (ranks, maker)
    **{f"interpolate {mode}": (ranks, resized(mode)) for mode, ranks in
       {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "linear": (1,), "bilinear": (2,), "bicubic": (2,),
        "trilinear": (3,), "area": (1, 2, 3)}.items()},
    "interpolate antialias": ((2,), lambda r, rank: lambda x: F.interpolate(x, (5, 3), mode="bilinear",
                                                                           antialias=True)),
    **{f"pad {mode}": ((1, 2, 3), padded(mode)) for mode in ("reflect", "replicate", "circular")},
    "conv": ((1, 3), conv("Conv", 3, padding=1)),
    "conv, steps": ((1, 3), conv("Conv", 2, stride=2, dilation=2, groups=2, bias=False)),
    "conv transposed": ((1, 2, 3), conv("ConvTranspose", 3, stride=2, padding=1, output_padding=1)),
    "conv reflect": ((2,), conv("Conv", 3, padding=1, padding_mode="reflect")),
    "max pool": ((1, 2, 3), pooled("max_pool")),
    "avg pool": ((1, 2, 3), pooled("avg_pool")),
    "avg pool, divided": ((2, 3), pooled("avg_pool", divisor_override=3)),
    "adaptive avg pool": ((1, 2, 3), pooled("adaptive_avg_pool")),
    "adaptive max pool": ((1, 2, 3), pooled("adaptive_max_pool")),
    "local response norm": ((1, 2), function(lambda x: F.local_response_norm(x, 3))),
    "instance norm": ((1, 2, 3), norm(lambda rank: getattr(nn, f"InstanceNorm{rank}d")(4))),
    "instance norm, affine": ((1, 2, 3), norm(lambda rank: getattr(nn, f"InstanceNorm{rank}d")(4, affine=True))),
    "group norm": ((1, 2, 3), norm(lambda rank: nn.GroupNorm(2, 4))),
    "group norm, plain": ((2,), norm(lambda rank: nn.GroupNorm(4, 4, affine=False))),
    "unfold": ((2,), function(lambda x: F.unfold(x, 3, padding=1, stride=2))),
    "fold": ((2,), function(lambda x: F.fold(F.unfold(x, 2), x.shape[2:], 2))),
    "pixel shuffle": ((2,), function(lambda x: F.pixel_shuffle(x, 2))),
    "pixel unshuffle": ((2,), function(lambda x: F.pixel_unshuffle(x, 2))),
    "channel shuffle": ((1, 2), function(lambda x: F.channel_shuffle(x, 2))),
    "grid sample": ((2, 3), sampled),
    "affine grid": ((2, 3), placed),
    "dropout of features": ((1, 2, 3), lambda r, rank: getattr(F, f"dropout{rank}d")),
    "alpha dropout": ((2,), function(lambda x: F.alpha_dropout(x, 0.4, True))),
    "alpha dropout of features": ((2,), function(lambda x: F.feature_alpha_dropout(x, 0.4, True))),
}


def drawn(r, rank):
    """An image with some special values, in some layout."""
    sizes = [r.randint(1, 3), 4, *[r.choice([4, 6, 8]) for _ in range(rank)]]
    x = torch.randn(sizes)
    if r.random() < 0.5:
        x = (x * 2).round() / 2  # ties
    layout = r.choice(["plain", "plain", "last", "turned", "stepped"])
    if layout == "last" and rank > 1:
        x = x.to(memory_format=torch.channels_last if rank == 2 else torch.channels_last_3d)
    elif layout == "turned":
        x = x.transpose(1, -1).contiguous().transpose(1, -1)
    elif layout == "stepped":
        x = torch.stack([x, x], -1)[..., 0]
    return x


def special(r, x):
    """Somewhere NaN or infinities."""
    y = x.clone()
    for value in r.sample([NAN, INF, -INF], r.randint(0, 2)):
        y[tuple(r.randrange(n) for n in y.shape)] = value
    return y


def outcome(program, part, x, weight, cotangent, twice):
    parameters = list(part.parameters()) if isinstance(part, nn.Module) else []
    for p in parameters:
        p.grad = None
    torch.manual_seed(1)
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    result = program(part, x, weight)
    shown = [result.shape, result.stride(), result._version, result.grad_fn.name(), type(result.grad_fn).__name__]
    leaves = [x, weight, *parameters]
    g = cotangent(result)
    try:
        gradients = torch.autograd.grad(result, leaves, g, create_graph=twice, allow_unused=True)
        if twice:
            total = sum((t * t.detach().tanh()).sum() for t in gradients if t is not None and t.requires_grad)
            second = torch.autograd.grad(total, leaves, allow_unused=True) if torch.is_tensor(total) else ()
            gradients = [*gradients, *second]
    except (RuntimeError, NotImplementedError) as error:
        return shown + [str(error).split("\n")[0][:60]], [result.detach()]
    return shown, [result.detach(), *gradients]


def magnitude(tensors):
    """What may have been added up to nothing: a norm's gradient of a factor before it is zero but for rounding."""
    finite = [t[t.isfinite()] for t in tensors if t is not None]
    return 1 + sum(t.abs().max().item() for t in finite if t.numel())


def close(want, got, scale):
    if want is None or got is None:
        return want is got
    return torch.allclose(want, got, rtol=1e-4, atol=2e-5 * scale, equal_nan=True)


def difference(want, got):
    if want is None or got is None:
        return want, got
    places = (want != got) & ~(want.isnan() & got.isnan())
    return f"{int(places.sum())} of {want.numel()} differ: {want[places][:4].tolist()} and {got[places][:4].tolist()}"


def alone(part, x, weight):
    return part(x * weight)


def between(part, x, weight):
    y = part((x * weight).sigmoid() - 0.5)
    return (y * 1.5 + 0.25).tanh()


def last(part, x, weight):  # what it makes is what the program gets
    return part(torch.relu(x) + weight)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("program", [alone, between, last])
def test_as_eager(name, program):
    ranks, maker = PARTS[name]
    for seed in range(6 * len(ranks)):
        r = random.Random(f"{name} {program.__name__} {seed}")
        torch.manual_seed(seed)
        rank = ranks[seed % len(ranks)]
        part, x = maker(r, rank), drawn(r, rank)
        weight = torch.rand(4, *[1] * rank) + 0.5
        strange = r.random() < 0.3 and "grid" not in name and "conv" not in name  # zeros of the padding times NaN
        if strange and program is alone:
            x = special(r, x)

        def cotangent(result, strange=strange, seed=seed):
            g = (torch.arange(result.numel()) * 0.7 + seed).sin().view(result.shape)
            return special(random.Random(seed), g) if strange else g

        run, twice = dycl.accelerate(program), seed % 3 == 2
        want = outcome(program, part, x, weight, cotangent, twice)
        for nth in range(4):
            got = outcome(run, part, x, weight, cotangent, twice)
            what = f"{name}, {program.__name__}, seed {seed}, run {nth}, {tuple(x.shape)} {x.stride()}"
            assert got[0] == want[0], what
            for i, (a, b) in enumerate(zip(want[1], got[1], strict=True)):
                assert close(a, b, magnitude(want[1])), f"{what}: {i}: {difference(a, b)}"
        stats = dycl.stats(run)
        assert stats["torch"] <= 2 and not stats["bails"].get("grad"), (what, stats["bails"])
        assert twice or stats["backward_replays"] == 0, (what, dycl.explain(run))


@pytest.mark.parametrize("dtype", [torch.float64])
@pytest.mark.parametrize("name", PARTS)
def test_double(name, dtype):
    ranks, maker = PARTS[name]
    for seed in range(2 * len(ranks)):
        r = random.Random(f"{name} {seed}")
        torch.manual_seed(seed)
        rank = ranks[seed % len(ranks)]
        part, x, weight = maker(r, rank), drawn(r, rank).to(dtype), torch.rand(4, *[1] * rank, dtype=dtype)
        part = part.to(dtype) if isinstance(part, nn.Module) else part
        run = dycl.accelerate(between)

        def cotangent(result):
            return (torch.arange(result.numel(), dtype=dtype) * 0.7).sin().view(result.shape)

        want = outcome(between, part, x, weight, cotangent, False)
        for _ in range(3):
            got = outcome(run, part, x, weight, cotangent, False)
            assert got[0] == want[0], (name, seed)
            for a, b in zip(want[1], got[1], strict=True):
                assert close(a, b, magnitude(want[1])), (name, seed, a, b)
        assert not dycl.stats(run)["bails"].get("grad"), (name, dycl.stats(run)["bails"])


def test_one_segment():
    """A network of them is one segment each way, from the second call on."""
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"), nn.InstanceNorm2d(8, affine=True),
                            nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)])

    def step(x):
        x = layers[1](layers[0](x)).relu()
        y = F.silu(layers[3](layers[2](F.avg_pool2d(x, 2))))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return F.pixel_shuffle(torch.cat([x, y], 1), 2).square().mean()

    run = dycl.accelerate(step)
    for nth in range(6):
        run(torch.randn(2, 3, 8, 8)).backward()
        if nth == 2:
            before = dycl.stats(run)
    stats = dycl.stats(run)
    assert stats["torch"] == before["torch"], stats["bails"]
    assert stats["segments"] - before["segments"] == 3 and stats["nodes"] - before["nodes"] == 3
    assert stats["backward_passes"] - before["backward_passes"] == 3


def test_volumes_are_one_segment():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2),
                            nn.Conv3d(4, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
                            nn.Linear(8, 3))
    run = dycl.accelerate(lambda x: network(x).square().mean())
    for nth in range(6):
        run(torch.randn(2, 1, 4, 8, 8)).backward()
        if nth == 2:
            before = dycl.stats(run)
    stats = dycl.stats(run)
    assert stats["torch"] == before["torch"] and stats["segments"] - before["segments"] == 3, stats["bails"]


def test_indices_and_values():
    """A pool whose positions are wanted, too, gives the same of both."""

    def program(x):
        y, where = F.max_pool2d(x * 2, 3, 2, 1, return_indices=True)
        z, there = F.adaptive_max_pool2d(x + 1, 2, return_indices=True)
        return y.tanh(), where, z.exp(), there

    run = dycl.accelerate(program)
    for _ in range(4):
        x = (torch.randn(2, 3, 7, 6) * 2).round()
        leaves = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        outcomes = []
        for f, leaf in zip((program, run), leaves):
            y, where, z, there = f(leaf)
            (y.sum() * 2 + z.sum()).backward()
            outcomes.append((y, where, z, there, leaf.grad))
        for a, b in zip(*outcomes):
            torch.testing.assert_close(b, a)
        assert not outcomes[1][1].requires_grad


def test_operands_without_a_gradient():
    """In training, what needs none is recorded as without it: images are prepared, masks are resized."""

    def program(image, weight):
        crop = F.pad(image, (1, 1, 1, 1), mode="reflect").atan()
        small = F.interpolate(crop, scale_factor=0.5, mode="bilinear")
        return (F.conv2d(small, weight) * 2).square().mean()

    run = dycl.accelerate(program)
    for nth in range(4):
        image, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3, requires_grad=True)
        want, = torch.autograd.grad(program(image, weight), weight)
        got, = torch.autograd.grad(run(image, weight), weight)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        if nth == 1:
            before = dycl.stats(run)["torch"]
    assert dycl.stats(run)["torch"] == before


def test_what_cannot_go_back_replays_no_segment():
    """Around and cut off at once: no formula, which is known when it is called."""
    run = dycl.accelerate(lambda x: F.pad(x * 1.0, (-1, 2), mode="circular") * 2)
    for _ in range(4):
        x = torch.randn(2, 3, 5, requires_grad=True)
        run(x).sum().backward()
        assert x.grad.shape == x.shape
    assert dycl.stats(run)["replays"] == 0, dycl.explain(run)
