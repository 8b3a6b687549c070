"""Every backward operator of torch that runs as a step (csrc/ir/hosted.def) runs: shapes, layouts and options are
drawn; results and gradients are eager's and lie as eager's, and no backward pass is left to torch."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from dycl import _core
from suite import one_thread  # noqa: F401 (a fixture)

ROWS = {row[0] for row in _core.hosted() if row[0].endswith("_backward")}
# values only: torch lays these out as another operand or the gradient lies
LAID_OTHERWISE = {"binary_cross_entropy", "convolution"}


def image(r, rank, batch=(1, 3), low=4):
    """An image in some layout, with ties."""
    x = torch.randn(r.randint(*batch), r.choice([2, 4]), *[r.randint(low, low + 4) for _ in range(rank)])
    if r.random() < 0.3:
        x = (x * 2).round() / 2
    kind = r.choice(["plain", "plain", "last", "turned", "stepped"])
    if kind == "last" and rank > 1:
        return x.to(memory_format=torch.channels_last if rank == 2 else torch.channels_last_3d)
    if kind == "turned":
        return x.mT.contiguous().mT
    return torch.stack([x, x], -1)[..., 0] if kind == "stepped" else x


def matrix(r):
    x = torch.randn(r.randint(2, 6), r.randint(2, 6))
    return x if r.random() < 0.6 else x.mT.contiguous().mT


def resized(mode, rank, **kwargs):
    def made(r):
        options = dict(kwargs)
        if r.random() < 0.6:
            options["size"] = [r.randint(1, 9) for _ in range(rank)]
        else:
            options["scale_factor"] = r.choice([2, 0.5, 1.7, [r.choice([1.5, 2.0]) for _ in range(rank)]])
        if "linear" in mode or mode == "bicubic":
            options["align_corners"] = r.random() < 0.5
        return [image(r, rank)], lambda x: F.interpolate(x, mode=mode, **options)

    return made


def padded(mode, rank):
    def made(r):
        pad = [1, *(r.randint(0, 3) for _ in range(2 * rank - 1))]
        return [image(r, rank)], lambda x: F.pad(x, pad, mode=mode)

    return made


def pooled(name, rank, **kwargs):
    def made(r):
        options = dict(kwargs, stride=r.choice([None, 1, 2]), padding=r.choice([0, 1]), ceil_mode=r.random() < 0.5)
        if "avg" in name and rank > 1:
            options |= {"divisor_override": r.choice([None, 3]), "count_include_pad": r.random() < 0.5}
        f = getattr(F, f"{name}{rank}d")
        return [image(r, rank)], lambda x: first(f(x, r_kernel[:rank], **options))

    r_kernel = [2, 3, 2]
    return made


def first(result):
    return result[0] if isinstance(result, tuple) else result


def adaptive(name, rank, dtype=torch.float32, **kwargs):
    def made(r):
        size = [r.randint(1, 3) for _ in range(rank)]
        return [image(r, rank).to(dtype)], lambda x: first(getattr(F, f"{name}{rank}d")(x, size, **kwargs))

    return made


def loss(function, positive=False, weighted=False):
    def made(r):
        x, y = matrix(r), None
        y = torch.rand_like(x) if positive else torch.randn_like(x)
        x = x.sigmoid() if positive else x
        reduction, weight = r.choice(["none", "mean", "sum"]), torch.rand(x.shape)
        extra = {"weight": weight} if weighted and r.random() < 0.5 else {}
        return [x], lambda x: function(x, y, reduction=reduction, **extra)

    return made


def logit(r):
    eps = r.choice([None, 0.1])
    return [matrix(r).sigmoid()], lambda x: torch.logit(x, eps)


def windows(r):
    x = image(r, r.choice([1, 2, 3]))
    dim = r.randrange(1, x.ndim)
    size = r.randint(2, x.shape[dim])
    return [x], lambda x: x.unfold(dim, size, 1)


def cumprod(r):
    dim = r.choice([0, 1, -1])
    return [matrix(r).round()], lambda x: x.cumprod(dim)


def pdist(r):
    p = r.choice([1.0, 2.0, 3.0])
    return [matrix(r)], lambda x: torch.pdist(x, p)


def cdist(r):
    p = r.choice([1.0, 2.0, 3.0])
    return [torch.randn(r.randint(2, 5), 3), torch.randn(r.randint(2, 5), 3)], \
        lambda x, y: torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")


def embedding(r):
    i, scale, pad = torch.randint(0, 5, (r.randint(1, 4), 3)), r.random() < 0.5, r.choice([None, 1])
    return [torch.randn(5, r.randint(1, 6))], \
        lambda w: F.embedding(i, w, scale_grad_by_freq=scale, padding_idx=pad)


def conv(r):
    rank, groups, bias = 3, r.choice([1, 2]), r.random() < 0.5
    x, w = image(r, rank), torch.randn(4, 4 // groups, 2, 3, 2)
    x = torch.cat([x, x], 1)[:, :4]
    stride, padding = r.choice([1, 2]), r.choice([0, 1])
    more = [torch.randn(4)] if bias else []
    return [x, w, *more], lambda x, w, *b: F.conv3d(x, w, *b, stride=stride, padding=padding, groups=groups)


def sampled(rank):
    def made(r):
        mode, align = r.choice(["bilinear", "nearest", *(["bicubic"] if rank == 2 else [])]), r.random() < 0.5
        padding, x = r.choice(["zeros", "border", "reflection"]), image(r, rank)
        grid = torch.rand(len(x), *[r.randint(2, 4) for _ in range(rank)], rank) * 2 - 1
        return [x, grid], \
            lambda x, g: F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=align)

    return made


def affine(r):
    rank, align = r.choice([2, 3]), r.random() < 0.5
    n, sizes = r.randint(1, 3), [r.randint(2, 4) for _ in range(rank)]
    return [torch.randn(n, rank, rank + 1)], lambda t: F.affine_grid(t, [n, 2, *sizes], align_corners=align)


PARTS = {
    "logit": logit,
    "smooth_l1_loss": loss(F.smooth_l1_loss),
    "huber_loss": loss(F.huber_loss),
    "soft_margin_loss": loss(F.soft_margin_loss),
    "binary_cross_entropy": loss(F.binary_cross_entropy, True, True),
    "cumprod": cumprod,
    "_pdist": pdist,
    "_cdist": cdist,
    "embedding_dense": embedding,
    "convolution": conv,
    "max_pool2d_with_indices": pooled("max_pool", 2, return_indices=True),
    "max_pool3d_with_indices": pooled("max_pool", 3),
    "avg_pool2d": pooled("avg_pool", 2),
    "avg_pool3d": pooled("avg_pool", 3),
    "_adaptive_avg_pool2d": adaptive("adaptive_avg_pool", 2, dtype=torch.float64),  # float32's kernel is ours
    "_adaptive_avg_pool3d": adaptive("adaptive_avg_pool", 3),
    "adaptive_max_pool2d": adaptive("adaptive_max_pool", 2),
    "adaptive_max_pool3d": adaptive("adaptive_max_pool", 3),
    **{f"upsample_nearest{n}d": resized("nearest", n) for n in (1, 2, 3)},
    **{f"upsample_nearest_exact{n}d": resized("nearest-exact", n) for n in (1, 2, 3)},
    "upsample_linear1d": resized("linear", 1),
    "upsample_bilinear2d": resized("bilinear", 2),
    "upsample_trilinear3d": resized("trilinear", 3),
    "upsample_bicubic2d": resized("bicubic", 2),
    "upsample_bilinear2d_aa": resized("bilinear", 2, antialias=True),
    "upsample_bicubic2d_aa": resized("bicubic", 2, antialias=True),
    **{f"reflection_pad{n}d": padded("reflect", n) for n in (1, 2, 3)},
    **{f"replication_pad{n}d": padded("replicate", n) for n in (1, 2, 3)},
    "grid_sampler_2d": sampled(2),
    "grid_sampler_3d": sampled(3),
    "affine_grid_generator": affine,
    "unfold": windows,
}


def outcome(program, operands, layout):
    leaves = [t.detach().requires_grad_() for t in operands]
    result = program(*leaves)
    g = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view(result.shape)
    if layout == "turned" and g.ndim > 1:
        g = g.transpose(0, -1).contiguous().transpose(0, -1)
    elif layout == "last" and g.ndim > 3:
        g = g.to(memory_format=torch.channels_last if g.ndim == 4 else torch.channels_last_3d)
    return [result.detach(), *torch.autograd.grad(result, leaves, g)]


@pytest.mark.parametrize("name", PARTS)
def test_runs(name):
    ran, row = set(), row_of(name)
    for seed in range(16):
        r = random.Random(f"{name} {seed}")
        torch.manual_seed(seed)
        operands, part = PARTS[name](r)
        before = 1.5 if name not in ("logit", "binary_cross_entropy") and r.random() < 0.5 else None

        def program(*leaves, part=part, before=before):  # alone, the gradient lies as torch's operator says
            return part(*(t * before for t in leaves)).sin() if before else part(*leaves) * 2

        layout = r.choice(["plain", "plain", "turned", "last"])
        run = dycl.accelerate(program)
        want = outcome(program, operands, layout)
        for nth in range(3):
            got = outcome(run, operands, layout)
            for i, (a, b) in enumerate(zip(want, got, strict=True)):
                what = f"{name}, seed {seed}, run {nth}, {i}: {tuple(a.shape)}"
                assert a.stride() == b.stride() or name in LAID_OTHERWISE, what
                torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5, msg=lambda m, what=what: f"{what}: {m}")
        stats = dycl.stats(run)
        assert stats["backward_replays"] == 0 and stats["replays"] == 0, (name, seed, dycl.explain(run))
        ran |= {word for word in dycl.explain(run).split() if word in ROWS}
    assert row in ran, ran


def row_of(name):
    return next(row for row in ROWS if row == f"aten_{name}_backward")


def test_each_row_has_a_part():
    assert {row_of(name) for name in PARTS} == ROWS
