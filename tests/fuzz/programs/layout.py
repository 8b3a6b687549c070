"""Sizes and strides: how operands lie in memory. Plain inputs get any strides that torch allows; what is recorded gets
them from chains of views."""

import math

MOST = 20_000  # elements of an input


def some_size(rng):
    return rng.choice([0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 33, 64, 100]) if rng.random() < 0.35 \
        else rng.choice([1, 1, 2, 2, 3, 4, 5, 7])


def some_shape(rng, rank):
    while True:
        shape = tuple(some_size(rng) for _ in range(rank))
        if math.prod(shape) <= MOST:
            return shape


def contiguous(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def packed(shape, order):
    """Dense strides with the dimensions in this order, the last one closest."""
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def channels_last(shape):
    return packed(shape, [0, *range(2, len(shape)), 1])


def some_strides(rng, shape):
    """(strides, offset) of a plain tensor."""
    rank = len(shape)
    kind = rng.choice(["contiguous"] * 4 + ["permuted"] * 3 + ["transposed", "channels last", "sliced", "sliced",
                                                               "expanded", "windows", "offset", "ones"])
    order = list(range(rank))
    if kind == "permuted":
        rng.shuffle(order)
    elif kind == "transposed" and rank > 1:
        order[-1], order[-2] = order[-2], order[-1]
    strides, offset = list(packed(shape, order)), 0
    if kind == "channels last" and rank > 2:
        strides = list(channels_last(shape))
    elif kind == "sliced" and rank:
        if rng.random() < 0.5:
            rng.shuffle(order)
        wide = list(shape)
        for _ in range(rng.choice([1, 1, 2])):
            wide[rng.randrange(rank)] += rng.choice([1, 2, 3])
        strides = list(packed(wide, order))
        if rng.random() < 0.5:
            step = rng.choice([2, 2, 3])
            d = rng.randrange(rank)
            strides = [s * step if (i == d or s > strides[d]) else s for i, s in enumerate(strides)]
        offset = rng.choice([0, 1, 3])
    elif kind == "expanded" and rank:
        for d in rng.sample(range(rank), rng.randint(1, min(2, rank))):
            strides[d] = 0
    elif kind == "windows" and rank > 1:
        strides = list(contiguous(shape))
        strides[-2] = rng.choice([1, 2])
    elif kind == "offset":
        offset = rng.choice([1, 2, 5])
    if kind in ("ones", "permuted", "channels last") or rng.random() < 0.2:  # a dimension of size 1 may have any stride
        for d in range(rank):
            if shape[d] == 1 and rng.random() < 0.6:
                strides[d] = rng.choice([0, 1, 2, 7, math.prod(shape), 100])
    return tuple(strides), offset


def resized(shape, strides, old, new):
    """The same layout where each dimension of size `old` has size `new`: (shape, strides)."""
    rank = len(shape)
    wide = tuple(new if n == old else n for n in shape)
    order = sorted(range(rank), key=lambda d: (-strides[d], d))
    dense = packed(wide, order)
    return wide, tuple(0 if s == 0 else d for s, d in zip(strides, dense))


def chain(rng, shape):
    """(base sizes, text of views): what `base<views>` has the shape, and strides that views make."""
    rank = len(shape)
    order = list(range(rank))
    if rank > 1 and rng.random() < 0.5:
        rng.shuffle(order)
    base, cut, wide = [], [], [shape[d] for d in order]
    expands = False
    for i, n in enumerate(wide):
        r = rng.random()
        if r < 0.12 and n != 1:
            base.append(1)
            cut.append(":")
            expands = True
        elif r < 0.3:
            start, step, more = rng.choice([0, 0, 1, 2]), rng.choice([1, 1, 2, 3]), rng.choice([0, 1])
            base.append(start + max(n - 1, 0) * step + (1 if n else 0) + more * (step if n else 0))
            cut.append(f"{start}:{start + n * step if n else start}" + (f":{step}" if step > 1 else ""))
        else:
            base.append(n)
            cut.append(":")
    text = ""
    if any(c != ":" for c in cut):
        text += f"[{', '.join(cut)}]"
    if expands:
        text += f".expand({', '.join(map(str, wide))})"
    if order != sorted(order):
        text += f".permute({', '.join(str(order.index(d)) for d in range(rank))})"
    return tuple(base), text
