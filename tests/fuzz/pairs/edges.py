"""Options of rows at the edges of what they take: windows as large as the image, paddings of half a window, padding by
as much as there is, weights that lie as few do, dimensions as an empty list."""


def window(c, n, pools):
    """Kernel, stride, padding, dilation for a size of n."""
    if pools:
        k = max(c.choose(n, n, n + 1, n + 2, 4, 5), 1)
        p = k // 2 if k > n else c.choose(k // 2, k // 2, 0)
        return k, c.choose(1, 2, 3, 4, 7), p, 1  # dilated windows that lie wholly in the padding end torch's process
    d, p = c.choose(1, 1, 2, 3, 4, 5), c.choose(0, 2, 3, 4, 7)
    most = max((n + 2 * p - 1) // d + 1, 1)
    return min(c.choose(2, 3, 4, most, most), 9, most), c.choose(1, 2, 3, 4, 5, 7), p, d


def pool_options(c):
    """Of an average pool, behind `ceil_mode` and `count_include_pad`."""
    return f", {c.choose(1, 2, -3, 7)}" if c.chance(0.15) else ""


def pads(c, x):
    """The arguments of `F.pad` in a mode that reads the image, or None. `circular` takes no negative padding in here:
    torch reads memory that is not the tensor's."""
    sizes = tuple(c[x].shape)
    spatial = len(sizes) - 2 if len(sizes) > 2 else 1
    if not 2 <= len(sizes) <= 5 or spatial > 3 or not all(sizes):
        return None
    mode, by = c.choose("reflect", "replicate", "circular"), []
    for n in sizes[: -spatial - 1 : -1]:
        most = {"reflect": n - 1, "circular": n}.get(mode, n + 1)
        by += [c.choose(0, min(1, most), most) if most < 12 else c.choose(0, 1, 3) for _ in range(2)]
    return f'{tuple(by)}, mode="{mode}"'


def affine(c, shape, dtype, kind=None):
    """A weight or bias of a norm: now and then one value for all, every second element, the column of a matrix."""
    if not c.chance(0.4) or not shape:
        return c.weight(shape, dtype, kind)
    if len(shape) == 1 and c.chance(0.35):
        return f"{c.weight((*shape, 3), dtype, kind)}[:, {c.choose(0, 1, 2)}]"
    return c.weight(shape, dtype, kind, ["expanded", "sliced", "transposed", "offset"])


def dims(c, rank):
    """Dimensions to reduce: none, which are all, or in any order, also from the end."""
    if c.chance(0.4):
        return c.choose(", ()", ", []", ", None")
    some = c.rng.sample(range(rank), c.rng.randint(1, rank))
    return f", {[d - rank if c.chance(0.5) else d for d in some]}"
