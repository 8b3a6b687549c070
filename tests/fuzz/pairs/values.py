"""Tensors as texts of plain torch, so that a case can be printed as the few lines that make it.

Kinds of data
    grid     quarters of small magnitude: sums and products of some hundred of them are exact in float32 in any order
    smooth   normally distributed
    special  the grid with infinities, NaN, both zeros, subnormals and numbers at the edges of exp; extremes of integers
    huge     the same with the largest numbers, for elementwise operators: whether sums of those overflow is a matter of
             their order
"""

import math

import torch

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
HALVES = ("bf16", "f16")
FLOATS = ("f32", "f64", *HALVES)
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
NAMES = {dtype: name for name, dtype in DTYPES.items()}

SPECIAL = ("special", "huge")
_SPECIAL = {
    "f32": "[inf, -inf, nan, 0., -0., 1., -1., 0.5, 1e-40, 1e-20, 88.5, -104.]",
    "f64": "[inf, -inf, nan, 0., -0., 1., -1., 0.5, 5e-324, 1e-200, 709.5, -746.]",
    "bf16": "[inf, -inf, nan, 0., -0., 1., -1., 0.5, 1e-40, 1e-20, 88.5, -104.]",
    "f16": "[inf, -inf, nan, 0., -0., 1., -1., 0.5, 6e-8, 1e-4, 11.5, -17.]",
    "i64": "[0, 1, -1, 2, -3, 5, 2**63 - 1, -2**63]",
    "i32": "[0, 1, -1, 2, -3, 5, 2**31 - 1, -2**31]",
    "i16": "[0, 1, -1, 2, -3, 5, 2**15 - 1, -2**15]",
    "i8": "[0, 1, -1, 2, -3, 5, 127, -128]",
    "u8": "[0, 1, 2, 3, 7, 128, 254, 255]",
}
_HUGE = {
    "f32": "3e38, -3e38, 1e20",
    "f64": "1.5e308, -1e308, 1e200",
    "bf16": "3e38, -3e38, 1e20",
    "f16": "65504., -65504., 4e4",
}


def plain(rng, shape, dtype, kind):
    """A contiguous tensor of these sizes. `kind` may also be "positive" (the grid without zero) or an int n (integers
    below n)."""
    torch_dtype, shape = f"torch.{str(DTYPES[dtype])[6:]}", tuple(shape)
    if isinstance(kind, int):
        return f"torch.randint(0, {kind}, {shape}, dtype={torch_dtype})"
    if dtype == "bool":
        return f"torch.randint(0, 2, {shape}).bool()"
    if kind in SPECIAL:
        table = _SPECIAL[dtype]
        if kind == "huge" and dtype in FLOATS:
            table = f"{table[:-1]}, {_HUGE[dtype]}]"
        count = table.count(",") + 1
        extra = rng.choice([2, 3, 6]) * count  # most elements ordinary
        index = f"torch.randint(0, {extra}, {shape})"
        if dtype in FLOATS:
            ordinary = f"torch.arange(-6, {extra - count - 6}).div(4)"
            return f"torch.cat([torch.tensor({table}, dtype={torch_dtype}), {ordinary}])[{index}]"
        return f"torch.tensor({table}, dtype={torch_dtype})[{index} % {count}]"
    low, high = (1, 25) if kind == "positive" else (0, 16) if dtype == "u8" else (-12, 13)
    if dtype not in FLOATS:
        return f"torch.randint({low}, {min(high, 16)}, {shape}, dtype={torch_dtype})"
    made = f"torch.randn({shape})" if kind == "smooth" else f"torch.randint({low}, {high}, {shape}).div(4)"
    return made + {"f32": "", "f64": ".double()", "bf16": ".bfloat16()", "f16": ".half()"}[dtype]


def _swapped(shape, i, j):
    out = list(shape)
    out[i], out[j] = out[j], out[i]
    return out


def _channels_last(rng, shape, make):
    if len(shape) != 4:
        return None
    n, c, h, w = shape
    if rng.random() < 0.5:
        return make(shape) + ".to(memory_format=torch.channels_last)"
    return make((n, h, w, c)) + ".permute(0, 3, 1, 2)"


def _transposed(rng, shape, make):
    if len(shape) < 2:
        return None
    i, j = rng.sample(range(len(shape)), 2)
    return make(_swapped(shape, i, j)) + f".transpose({i}, {j})"


def _permuted(rng, shape, make):
    if len(shape) < 3:
        return None
    order = rng.sample(range(len(shape)), len(shape))
    inner = [0] * len(shape)
    for to, at in enumerate(order):
        inner[at] = shape[to]
    return make(inner) + f".permute{tuple(order)}"


def _expanded(rng, shape, make):
    if not shape:
        return None
    few = [1 if rng.random() < 0.5 else n for n in shape]
    drop = rng.randint(0, len(shape) - 1) if rng.random() < 0.4 else 0
    return make(few[drop:]) + f".expand{tuple(shape)}" if len(shape) > 1 else make(few) + f".expand({shape[0]})"


def _sliced(rng, shape, make):
    if not shape:
        return None
    d = rng.randrange(len(shape))
    more, key = list(shape), [":"] * len(shape)
    form = rng.randint(0, 2)
    more[d] = 2 * shape[d] if form == 0 else shape[d] + 3
    key[d] = "::2" if form == 0 else f"1:{1 + shape[d]}" if form == 1 else f":{shape[d]}"
    return make(more) + f"[{', '.join(key)}]"


def _offset(rng, shape, make):
    return make([3, *shape]) + "[1]"


def _flipped(rng, shape, make):
    return make(shape) + f".flip({rng.randrange(len(shape))})" if shape else None


def _windows(rng, shape, make):
    """Overlapping rows."""
    if len(shape) < 2 or min(shape) == 0:
        return None
    rows, width = shape[-2:]
    step = rng.randint(1, max(1, width - 1))
    return make([*shape[:-2], (rows - 1) * step + width]) + f".unfold({len(shape) - 2}, {width}, {step})"


def _strange(rng, shape, make):
    """Dimensions of size 1 with strides that no new tensor has."""
    if not shape or 1 not in shape:
        return None
    d = rng.choice([i for i, n in enumerate(shape) if n == 1])
    more = list(shape)
    more[d] = 3
    return make(more) + f"[{':, ' * d}1:2]"


FORMATS = {
    "contiguous": lambda rng, shape, make: make(shape),
    "channels_last": _channels_last,
    "transposed": _transposed,
    "permuted": _permuted,
    "expanded": _expanded,
    "sliced": _sliced,
    "offset": _offset,
    "flipped": _flipped,
    "windows": _windows,
    "strange": _strange,
}
WRITABLE = ("contiguous", "channels_last", "transposed", "permuted", "sliced", "offset", "flipped", "strange")


def tensor(rng, shape, dtype, kind, formats=None):
    """The text of a tensor of these sizes, lying in memory in one of these ways (default: any)."""
    make = lambda sizes: plain(rng, sizes, dtype, kind)  # noqa: E731
    if rng.random() < 0.3 and (formats is None or "contiguous" in formats):
        return make(shape)
    for name in rng.sample(list(formats or FORMATS), len(formats or FORMATS)):
        text = FORMATS[name](rng, tuple(shape), make)
        if text is not None:
            return text
    return make(shape)


SIZES = [1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33]


def size(rng):
    r = rng.random()
    return 1 if r < 0.12 else 0 if r < 0.135 else rng.choice(SIZES)


def shape(rng, rank, most=3000):
    """Sizes with at most so many elements."""
    sizes = [size(rng) for _ in range(rank)]
    while math.prod(sizes) > most:
        sizes[sizes.index(max(sizes))] = rng.choice([1, 2, 3, 4])
    return tuple(sizes)


def large_shape(rng, rank):
    """Enough elements for a team of threads: 70,000 to 100,000."""
    sizes = [rng.choice([1, 2, 3, 5, 7, 8, 16]) for _ in range(rank)]
    if rank:
        d = rng.randrange(rank)
        others = math.prod(sizes) // sizes[d]
        sizes[d] = max(1, rng.randint(70000, 100000) // others)
    return tuple(sizes)
