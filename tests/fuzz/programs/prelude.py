"""What every generated program begins with; its source stands at the top of the scripts that are printed for
failures."""

import numpy as np  # noqa: F401 (programs use it)
import torch
import torch.nn.functional as F  # noqa: F401


def make(sizes, strides, offset, dtype, seed, values, rounded=None):
    """A tensor that owns its memory, with these strides (elements) in it. values: "normal", "grid" (small multiples of
    a quarter: sums are exact), "positive", "special" (grid with NaN, infinities, zeros of both signs), "subnormal" (and
    some of those), "bytes" (bool whose true elements are bytes other than 1, as a view of bytes has them) or "index n"
    (integers from 0 to n - 1). rounded: the name of a dtype that the values go through, where float64 stands for it."""
    extent = 1 + offset + sum((n - 1) * s for n, s in zip(sizes, strides) if n)
    rng = torch.Generator().manual_seed(seed)
    if values == "normal":
        memory = torch.randn(extent, generator=rng, dtype=torch.float64)
    elif values.startswith("index"):
        memory = torch.randint(0, int(values[6:]), (extent,), generator=rng)
    else:
        memory = torch.randint(-8, 9, (extent,), generator=rng) / 4
        if values == "positive":
            memory = memory.abs() + 0.25
    if values in ("special", "subnormal"):
        odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e9] if values == "special"
                           else [1e-40, -3e-39, 1e-30, 0.0])
        memory = torch.where(torch.rand(extent, generator=rng, dtype=torch.float32) < 0.2,
                             odd[torch.randint(0, len(odd), (extent,), generator=rng)], memory)
    if dtype == torch.bool:
        memory = (memory > 0) if values != "bytes" else (memory.abs() * 40).to(torch.uint8).view(torch.bool)
    elif not (dtype.is_floating_point or dtype.is_complex):
        memory = memory if values.startswith("index") else (memory.nan_to_num(0, 7, -7) * 4).round().clamp(-99, 99)
        memory = memory.abs() if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64) else memory
    if rounded is not None:
        memory = memory.to(getattr(torch, rounded))
    return torch.empty(0, dtype=dtype).set_(memory.to(dtype).untyped_storage(), offset, sizes, strides)


def note(log, x):
    """What a tensor tells about itself without its values."""
    log.append((tuple(x.shape), x.stride(), x.storage_offset(), x.dtype, x.is_contiguous(),
                None if x.is_inference() else x._version, x._is_view(), x.requires_grad))
