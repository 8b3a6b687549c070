"""Operators along another dimension than the last, where neighbours in memory belong to different rows."""

import random

import pytest
import torch
import torch.nn.functional as F

import dycl

ROWS = {
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "cumsum": torch.cumsum,
    "softmin": F.softmin,
}
REDUCED = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "prod": torch.prod,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "norm": lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
    "var": torch.var,
}
BOUNDS = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def draw(rng, dtype):
    rank = rng.choice((2, 3, 4))
    dim = rng.randrange(rank - 1)
    sizes = [rng.choice((1, 2, 3, 5)) for _ in range(rank)]
    sizes[dim] = rng.choice((1, 2, 3, 31, 32, 33, 70, 300))
    sizes[-1] = rng.choice((1, 7, 8, 9, 15, 16, 17, 49, 64, 70, 200, 600))
    x = torch.randn(sizes).mul_(rng.choice((1, 8))).to(dtype)
    way = rng.randrange(5)
    if way == 1:
        x = x.repeat_interleave(2, 0)[::2]
    elif way == 2:
        x = torch.cat([x, x], -1)[..., : sizes[-1]]
    elif way == 3:
        order = rng.sample(range(rank), rank)
        x = x.permute(order).contiguous().permute([order.index(i) for i in range(rank)])
    elif way == 4:
        x = x[:1].expand(sizes)
    return x, dim - rank * rng.randrange(2)


def alike(name, function, x, dim, dtype):
    def program(x):
        return function(x, dim=dim)

    fast = dycl.accelerate(program)
    bound = BOUNDS[dtype] * (16 if name in ("cumsum", "prod") else 1)
    with torch.no_grad():
        want = program(x)
        for _ in range(2):
            got = fast(x)
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want, rtol=bound, atol=bound, equal_nan=True)
    if not x.isfinite().all() or not want.is_floating_point():
        return
    leaves = [x.detach().clone().requires_grad_() for _ in range(2)]
    results = [f(leaf) for f, leaf in zip((program, fast), leaves, strict=True)]
    direction = torch.randn(want.shape).to(dtype)
    want, got = (torch.autograd.grad(r, leaf, direction)[0] for r, leaf in zip(results, leaves, strict=True))
    assert got.stride() == want.stride()
    if name not in ("prod", "amax", "amin"):  # halves of equal extremes, and quotients of tiny products
        torch.testing.assert_close(got, want, rtol=bound * 4, atol=bound * 4, equal_nan=True)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", (*ROWS, *REDUCED))
def test_random_shapes(name, dtype):
    rng = random.Random(f"{name} {dtype}")
    torch.manual_seed(0)
    for _ in range(24):
        x, dim = draw(rng, dtype)
        alike(name, {**ROWS, **REDUCED}[name], x, dim, dtype)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", (*ROWS, "sum", "amax", "amin", "prod", "mean", "argmax", "argmin"))
def test_special_values(name, dtype):
    torch.manual_seed(0)
    for sizes in ((3, 70), (40, 9), (2, 5, 130)):
        x = torch.randn(sizes).to(dtype)
        for column, special in enumerate((-torch.inf, torch.inf, torch.nan)):
            x[..., 0, column] = special
            x[..., :, column + 3] = special
        x[..., 0, 7], x[..., 1, 7] = torch.inf, -torch.inf
        alike(name, {**ROWS, **REDUCED}[name], x, x.dim() - 2, dtype)


def test_classes_of_images():
    """What a segmentation net's loss is made of."""
    torch.manual_seed(0)
    x, target = torch.randn(2, 5, 12, 13), torch.randint(0, 5, (2, 12, 13))
    fast = dycl.accelerate(lambda x: F.cross_entropy(x, target))
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    losses = [F.cross_entropy(leaves[0], target), fast(leaves[1])]
    torch.testing.assert_close(losses[1], losses[0])
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad)
    kinds = dycl.accelerate(lambda x: F.softmax(x, 1))
    with torch.no_grad():
        for _ in range(3):
            kinds(x)
    assert "row_columns" in dycl.explain(kinds)
