"""torch.nn.functional.interpolate: recorded, and equal to eager for sizes, scales and layouts drawn at random."""

import math
import random

import dycl
import pytest
import torch
import torch.nn.functional as F
from test_bind_nn import check, layouts

NAME = "nn.functional.interpolate"
MODES = [("nearest", 1), ("nearest-exact", 1), ("linear", 1), ("nearest", 2), ("nearest-exact", 2), ("bilinear", 2),
         ("bicubic", 2)]


@pytest.mark.parametrize("mode, spatial", MODES)
def test_sizes_and_scales(mode, spatial):
    draw = random.Random(spatial + len(mode))
    for _ in range(25):
        x = torch.randn(draw.randint(1, 3), draw.randint(1, 5), *(draw.randint(1, 19) for _ in range(spatial)))
        corners = draw.choice([None, False, True]) if "linear" in mode or mode == "bicubic" else None
        sizes = [draw.randint(1, 40) for _ in range(spatial)]
        scales = [draw.uniform(0.4, 3) if draw.random() < 0.6 else draw.choice([1.0, 2.0, 0.5, 4.0])
                  for _ in range(spatial)]
        check(lambda x: F.interpolate(x, size=sizes, mode=mode, align_corners=corners), x, name=NAME)
        check(lambda x: F.interpolate(x, sizes[0], mode=mode, align_corners=corners) + 1, x, name=NAME)
        if all(int(n * s) >= 1 for n, s in zip(x.shape[2:], scales)):
            check(lambda x: F.interpolate(x * 2, scale_factor=tuple(scales), mode=mode, align_corners=corners), x,
                  name=NAME)
    check(lambda x: F.interpolate(x, scale_factor=2, mode=mode), torch.randn(2, 3, *[5] * spatial), name=NAME)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_layouts_and_large_planes(mode):
    for x in layouts(3, 4, 6, 5):
        check(lambda x: F.interpolate(x, (9, 4), mode=mode), x, name=NAME)
    check(lambda x: F.interpolate(x, (128, 100), mode=mode), torch.randn(2, 32, 64, 50), name=NAME)  # several threads
    x = torch.randn(1, 2, 4, 4)
    x[0, 0, 1, 1], x[0, 1, 2, 3] = float("nan"), float("inf")
    check(lambda x: F.interpolate(x, (7, 3), mode=mode), x, name=NAME)


def test_what_torch_rejects_or_does_otherwise():
    x = torch.randn(1, 2, 4, 4)
    check(lambda x: F.interpolate(x, (7, 3), mode="bilinear", antialias=True), x, name=NAME)
    check(lambda x: F.interpolate(x.double(), (7, 3)), x, name=NAME)
    for wrong in ({"size": 3, "scale_factor": 2}, {}, {"size": (0, 3)}, {"size": (3,)},
                  {"size": 3, "align_corners": True}, {"size": 3, "mode": "linear"}, {"size": 3, "mode": "x"}):
        with pytest.raises(Exception) as eager:
            F.interpolate(x, **wrong)
        with pytest.raises(type(eager.value)) as ours:
            dycl.accelerate(lambda x: F.interpolate(x, **wrong))(x)
        assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("mode", ["nearest", "linear", "bilinear", "bicubic"])
def test_neighbours_that_are_not_finite(mode):
    """An element times a weight of 0 is NaN where it is not finite: so which neighbours are read matters, above all
    along an axis that keeps its size."""
    lines = mode == "linear"
    shapes = {(1, 9): [(9,), (18,), (5,)], (1, 1): [(1,), (3,)]} if lines \
        else {(4, 5): [(4, 5), (4, 10), (8, 5), (3, 5), (4, 3), (2, 5), (9, 7)], (1, 9): [(2, 9), (1, 9), (3, 4)]}
    for shape, sizes in shapes.items():
        for size in sizes:
            for corners in (None,) if mode == "nearest" else (False, True):
                for at in range(math.prod(shape)):
                    x = torch.arange(1.0, math.prod(shape) + 1)
                    x[at] = float("inf") if at % 2 else float("nan")
                    x = x.view(1, *shape) if lines else x.view(1, 1, *shape)
                    check(lambda x: F.interpolate(x, size, mode=mode, align_corners=corners), x,
                          name=NAME)  # noqa: B023
