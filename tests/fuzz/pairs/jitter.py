"""Eager torch with errors: every inexact operator gets operands that are off by rounding and answers what is off by its
class's bounds."""

import sys
import pathlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves as leaves_of, tree_map

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "py"))

import tolerance  # noqa: E402

# exact where sums and products are (values.py, the grid)
_ON_GRID = (
    "sum cumsum linear matmul mm bmm mv dot addmm conv1d conv2d conv_transpose1d conv_transpose2d "
    "_grouped_mm vector_norm"
).split()
_OTHER_NAMES = {
    "_grouped_mm": "mm",
    "lstm": "matmul",
    "gru": "matmul",
    "rnn_tanh": "matmul",
    "rnn_relu": "matmul",
    "vector_norm": "norm",
    "instance_norm": "nn.functional.batch_norm",
    "log_sigmoid": "nn.functional.logsigmoid",
}


def copy_of(x):
    """A tensor with memory of its own and the same sizes, strides and offset."""
    return torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone(), x.storage_offset(), x.size(), x.stride())


def is_on_grid(x):
    """Multiples of 1/64 of small magnitude."""
    if not x.is_floating_point():
        return True
    scaled = x.detach().double() * 64
    return x.numel() == 0 or bool(((scaled == scaled.round()) & (scaled.abs() <= 2**16)).all())


def class_of(function):
    """The class of a function of torch by its name; EXACT: it is not jittered."""
    name = getattr(function, "__name__", "").removeprefix("linalg_")
    name = name if name.startswith("__") or not name.endswith("_") else name[:-1]
    special = "special." + name.removeprefix("special_")
    for candidate in (_OTHER_NAMES.get(name, name), f"nn.functional.{name}", special):
        kind = tolerance.class_of(candidate)
        if kind != tolerance.TORCH:
            return name, kind
    return name, tolerance.EXACT


class Jitter(TorchFunctionMode):
    """trial: 0 to 3 all up or all down, further ones at random, of which each second one takes numbers that are within
    reach of a multiple of 1/4 for that, and noise for 0. single: errors are those of float32."""

    def __init__(self, trial, single):
        super().__init__()
        self.trial, self.dtype = trial, torch.float32 if single else torch.float64
        self.rounding = 5e-7 if single else 1e-14
        self.snaps = trial > 4 and trial % 2

    def off(self, x, by, floor, snaps=False):
        """x off by that fraction of its elements' size, and of `floor`."""
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        sign = 1 - 2 * (self.trial % 2) if self.trial < 4 else torch.randint(0, 2, x.shape).to(x.dtype) * 2 - 1
        near = x.clone() if 0 in x.stride() else copy_of(x)
        reach = by * (x.abs() + floor)
        moved = x + sign * reach
        if snaps:
            whole = (x * 4).round() / 4
            moved = torch.where((x - whole).abs() <= reach, whole, moved)
        zero = torch.tensor(1.0 - 2 * (self.trial % 2), dtype=x.dtype)  # nor is the sign of a zero torch's
        moved = torch.where(moved == 0, torch.copysign(torch.zeros_like(x), zero), moved)
        return near.copy_(torch.where(torch.isfinite(x), moved, x))

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, kind = class_of(function)
        if kind == tolerance.EXACT:
            return function(*args, **kwargs)
        tensors = [x for x in leaves_of((args, kwargs)) if isinstance(x, torch.Tensor)]
        exact = name in _ON_GRID and all(is_on_grid(x) for x in tensors)
        in_place = function.__name__.endswith("_") and not function.__name__.startswith("__")
        by, floor = (0.0, 0.0) if exact else (tolerance.bounds(_LIKE[kind], self.dtype)[0], 0.0)
        if exact or in_place:
            result = function(*args, **kwargs)
        else:
            moved, moved_kwargs = tree_map(lambda x: self.off(x, self.rounding, 0.0), (args, kwargs))
            result = function(*moved, **moved_kwargs)
            if self.snaps:  # operands that were snapped stay what they are
                result = tree_map(without_noise, function(*args, **kwargs), result)
        if not exact and self.trial > 1:
            largest = max(map(size_of, leaves_of(result)), default=0.0)
            floor = 0.1 * largest
            if kind == tolerance.ELEMENTWISE:  # what cancels in the formula was as large as the operands
                floor = min(1.0, max([largest, *map(size_of, tensors)]))
        if in_place:
            return result.copy_(self.off(result.clone(), by, floor, self.snaps))
        if isinstance(result, torch.Tensor):
            return self.off(result, by, floor, self.snaps)
        return (
            type(result)(self.off(x, by, floor, self.snaps) for x in result)
            if type(result) in (tuple, list)
            else result
        )


def size_of(x):
    """The largest finite number."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
        return 0.0
    return x.abs().nan_to_num(0, 0, 0).max().item()


def without_noise(x, y):
    """x with 0 where it differs from y by as much as it has: nothing but rounding is left of it."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    return x.masked_fill((x - y).abs() >= 0.5 * torch.maximum(x.abs(), y.abs()), 0)


_LIKE = {tolerance.ELEMENTWISE: "exp", tolerance.REDUCTION: "sum", tolerance.PRODUCT: "matmul"}
