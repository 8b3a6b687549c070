"""The rest of the registry's rows: products, convolutions, pooling, norms, and what moves elements."""

import math

from . import edges, values
from .case import Unsuitable
from .rows import PRODUCT, REDUCTION, row

# ---- Products


@row("linear", PRODUCT, on_grid=True, wants="matrix")
def _linear(c, x):
    x = c.ranked(c.floating(x), 1)
    dtype, shape = c.dtype(x), tuple(c[x].shape)
    if len(shape) == 2 and c.chance(0.2):  # as the weight
        return f"F.linear({c.argument((c.choose(1, 2, 3, 9, 17), shape[1]), dtype)}, {x})"
    n = c.choose(1, 2, 3, 8, 16, 17, 33, 48)
    weight = c.weight((n, shape[-1]), dtype)
    bias = f", {c.weight((n,), dtype)}" if c.chance(0.5) else ""
    if len(shape) == 2 and c.chance(0.1):
        return f"torch.addmm({c.weight((n,), dtype)}, {x}, {weight}.t())"
    return f"F.linear({x}, {weight}{bias})"


@row("matmul", PRODUCT, on_grid=True, wants="matrix")
def _matmul(c, x):
    x = c.ranked(c.floating(x), 1)
    dtype, shape = c.dtype(x), tuple(c[x].shape)
    n = c.choose(1, 2, 3, 8, 16, 17, 33)
    if len(shape) == 1:
        return f"{x} @ {c.weight((shape[0], n), dtype)}" if c.chance(0.5) else f"{c.weight((n, shape[0]), dtype)} @ {x}"
    if c.twice:
        return f"{x} @ {x}.mT" if c.chance(0.5) else f"{x}.mT @ {x}"
    batch = shape[:-2]
    if batch and c.chance(0.5):
        batch = tuple(1 if c.chance(0.3) else b for b in batch)[c.rng.randrange(len(batch) + 1) :]
    if c.chance(0.3):
        return f"{c.weight((*batch, n, shape[-2]), dtype)} @ {x}"
    if c.chance(0.15):
        return f"torch.matmul({x}, {c.weight((shape[-1],), dtype)})"
    return f"{x} @ {c.weight((*batch, shape[-1], n), dtype)}"


@row("grouped_matmul", PRODUCT, on_grid=True, wants="matrix")
def _grouped_matmul(c, x):
    x = c.ranked(c.floating(x, ("f32", "bf16")), 2, 2)
    rows, k = c[x].shape
    if k % 8:
        pad = 8 - k % 8
        x = c.let(f"F.pad({x}, (0, {pad}))")
        k += pad
    if rows == 0 or k == 0:
        raise Unsuitable
    groups, n, dtype = c.choose(1, 2, 4), c.choose(8, 16, 24), c.dtype(x)
    ends = sorted(c.rng.randint(0, rows) for _ in range(groups - 1)) + [rows]
    offsets = c._declare(c.constants, "w", f"torch.tensor({ends}, dtype=torch.int32)")
    x = c.let(f"{x}.contiguous()") if c.chance(0.7) else x
    return f"torch._grouped_mm({x}, {c.weight((groups, k, n), dtype, formats=['contiguous'])}, offs={offsets})"


@row("recurrent", PRODUCT, wants="line")
def _recurrent(c, x):
    x = c.ranked(c.floating(x), 3, 3)
    dtype = c.dtype(x)
    first = c.chance(0.4)
    batch = c[x].shape[0 if first else 1]
    width, layers, both = c.choose(1, 3, 8), c.choose(1, 1, 2), c.chance(0.3)
    directions, biases = 1 + both, c.chance(0.7)
    kind = c.choose("lstm", "gru", "rnn_tanh", "rnn_relu")
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    weights, inputs = [], c[x].shape[2]
    for layer in range(layers):
        for _ in range(directions):
            shapes = [(gates * width, inputs if layer == 0 else width * directions), (gates * width, width)] + [
                (gates * width,)
            ] * (2 * biases)
            weights += [c.weight(shape, dtype) for shape in shapes]
    state = c.argument((layers * directions, batch, width), dtype)
    if kind == "lstm":
        state = f"({state}, {c.argument((layers * directions, batch, width), dtype)})"
    options = f"{biases}, {layers}, 0.0, False, {both}, {first}"
    return f"torch.{kind}({x}, {state}, [{', '.join(weights)}], {options})[{c.choose(0, 0, 1)}]"


# ---- Images


def image(c, x, ranks=(4,), floats=("f32", "f32", "f64", *values.HALVES), room=1):
    """x as an image of four dimensions, now and then three."""
    x = c.floating(x, floats)
    rank = c[x].dim()
    x = c.ranked(x, 4 if rank != 3 or c.chance(0.8) else 3, 4)
    if min(c[x].shape[-2:]) < room and min(c[x].shape) > 0:
        x = c.let(f"{x}.expand({(*c[x].shape[:-2], *(max(n, room) if n == 1 else n for n in c[x].shape[-2:]))})")
    return x


def _windows(c, sizes, pools=True):
    """Kernel, stride, padding, dilation that fit these sizes. Convolutions may see nothing of the image."""
    out = []
    same = c.chance(0.6)
    first = (c.choose(1, 2, 3, 3, 3, 5), c.choose(1, 1, 2, 3), c.choose(0, 0, 1, 2), c.choose(1, 1, 1, 2))
    for n in sizes:
        if c.chance(0.15) and n:
            out.append(edges.window(c, n, pools))
            continue
        k, s, p, d = first if same else (c.choose(1, 2, 3, 3, 4), c.choose(1, 1, 2), c.choose(0, 1), c.choose(1, 1, 2))
        p = min(p, k // 2)
        k = max(1, min(k, (n + 2 * p - 1) // d + 1))
        p = min(p, k // 2)
        if not pools and c.chance(0.15):
            s, p = c.choose(1, 2, 4, 5, 11), c.choose(k - 1, k, 5, 11)
        out.append((k, s, p, d))
    return [tuple(w[i] for w in out) for i in range(4)]


def _line(c, x):
    return c.ranked(c.floating(x, ("f32", "f32", "f64", *values.HALVES)), 3, 3)


@row("conv2d", PRODUCT, on_grid=True, wants="image")
def _conv2d(c, x):
    if c[x].dim() == 3 and c.chance(0.7) or c.chance(0.1):
        x = _line(c, x)
        channels, dtype = c[x].shape[1], c.dtype(x)
        (k,), (s,), (p,), (d,) = _windows(c, c[x].shape[2:], pools=False)
        out = c.choose(1, 3, 8, 16)
        weight = c.weight((out, channels, k), dtype, formats=["contiguous"] if c.chance(0.7) else None)
        return f"F.conv1d({x}, {weight}, {c.weight((out,), dtype) if c.chance(0.5) else None}, {s}, {p}, {d})"
    x = image(c, x)
    channels, dtype = c[x].shape[-3], c.dtype(x)
    kernel, stride, padding, dilation = _windows(c, c[x].shape[-2:], pools=False)
    groups = (
        c.rng.choice([g for g in (1, 1, 1, 2, 3, 4, channels) if channels and channels % g == 0]) if channels else 1
    )
    out = groups * c.choose(1, 2, 3, 8, 8, 16, 17) if groups < 5 else groups
    weight = c.weight((out, channels // groups, *kernel), dtype)
    bias = c.weight((out,), dtype) if c.chance(0.5) else None
    if c.chance(0.1) and not c.large:  # as the weight
        return (
            f"F.conv2d({c.argument((2, c[x].shape[1], c[x].shape[2] + 3, c[x].shape[3] + 3), dtype)}, {x})"
            if c[x].dim() == 4
            else f"F.conv2d({x}, {weight}, {bias}, groups={groups})"
        )
    return f"F.conv2d({x}, {weight}, {bias}, {stride}, {padding}, {dilation}, {groups})"


@row("conv_transpose2d", PRODUCT, on_grid=True, wants="image")
def _conv_transpose2d(c, x):
    if c[x].dim() == 3 and c.chance(0.7):
        x = _line(c, x)
        channels, dtype, k = c[x].shape[1], c.dtype(x), c.choose(1, 2, 3)
        weight = c.weight((channels, c.choose(1, 3, 8), k), dtype, formats=["contiguous"])
        return f"F.conv_transpose1d({x}, {weight}, stride={c.choose(1, 2)})"
    x = image(c, x)
    channels, dtype = c[x].shape[-3], c.dtype(x)
    groups = c.rng.choice([g for g in (1, 1, 1, 2, channels) if channels and channels % g == 0]) if channels else 1
    out, kernel, stride = (
        c.choose(1, 2, 3, 8, 9),
        (c.choose(1, 2, 3), c.choose(1, 2, 3)),
        (c.choose(1, 2), c.choose(1, 2, 3)),
    )
    padding = tuple(c.rng.randint(0, k // 2) for k in kernel)
    extra = tuple(c.rng.randint(0, min(p, s - 1)) for p, s in zip(padding, stride))
    bias = c.weight((groups * out,), dtype) if c.chance(0.5) else None
    weight, options = c.weight((channels, out, *kernel), dtype), f"{stride}, {padding}, {extra}, {groups}"
    return f"F.conv_transpose2d({x}, {weight}, {bias}, {options}, {c.choose(1, 1, 2)})"


def _pool(c, x, name, dilated):
    if c[x].dim() == 3 and c.chance(0.7):
        x = _line(c, x)
        (k,), (s,), (p,), (d,) = _windows(c, c[x].shape[2:])
        return f"F.{name}1d({x}, {k}, {s}, {p}, ceil_mode={c.chance(0.3)})"
    x = image(c, x)
    kernel, stride, padding, dilation = _windows(c, c[x].shape[-2:])
    if dilated:
        return f"F.{name}2d({x}, {kernel}, {stride}, {padding}, {dilation}, {c.chance(0.3)})"
    kernel, stride, padding, _ = _windows(c, c[x].shape[-2:]) if max(dilation) > 1 else (kernel, stride, padding, None)
    return f"F.{name}2d({x}, {kernel}, {stride}, {padding}, {c.chance(0.3)}, {c.chance(0.5)}{edges.pool_options(c)})"


row("max_pool2d", wants="image")(lambda c, x: _pool(c, x, "max_pool", True))
row("avg_pool2d", REDUCTION, wants="image")(lambda c, x: _pool(c, x, "avg_pool", False))


@row("adaptive_avg_pool2d", REDUCTION, wants="image")
def _adaptive(c, x):
    if c[x].dim() == 3 and c.chance(0.5):
        return f"F.adaptive_avg_pool1d({_line(c, x)}, {c.choose(1, 2, 3)})"
    return f"F.adaptive_avg_pool2d({image(c, x)}, {c.choose('1', '(1, 1)', '(2, 3)', '(None, 1)', '4')})"


@row("resize2d", REDUCTION, wants="image")
def _resize(c, x):
    if c[x].dim() == 3 and c.chance(0.5):
        return f'F.interpolate({_line(c, x)}, scale_factor=2, mode="{c.choose("nearest", "linear")}")'
    x = image(c, x)
    x = c.ranked(x, 4, 4)
    mode = c.choose("nearest", "nearest-exact", "bilinear", "bicubic")
    align = f", align_corners={c.chance(0.5)}" if mode in ("bilinear", "bicubic") else ""
    size = c.choose(
        "size=(5, 7)",
        "size=3",
        "scale_factor=2",
        "scale_factor=(0.5, 1.5)",
        f"size={(c[x].shape[2] * 2, c[x].shape[3])}",
    )
    return f'F.interpolate({x}, {size}, mode="{mode}"{align})'


# ---- Norms


def _affine(c, shape, dtype):
    return ", ".join(edges.affine(c, shape, dtype) if c.chance(0.7) else "None" for _ in range(2))


@row("layer_norm", REDUCTION, power=2)
def _layer_norm(c, x):
    x = c.ranked(c.floating(x), 1)
    shape = tuple(c[x].shape[c.rng.randrange(c[x].dim()) :]) if c.chance(0.3) else tuple(c[x].shape[-1:])
    return f"F.layer_norm({x}, {shape}, {_affine(c, shape, c.dtype(x))})"


@row("rms_norm", REDUCTION, power=2)
def _rms_norm(c, x):
    x = c.ranked(c.floating(x), 1)
    shape = tuple(c[x].shape[-c.rng.randint(1, min(2, c[x].dim())) :])
    weight = edges.affine(c, shape, c.dtype(x)) if c.chance(0.7) else None
    return f"F.rms_norm({x}, {shape}, {weight}{c.choose('', ', 1e-5')})"


@row("batch_norm", REDUCTION, wants="image")
def _batch_norm(c, x):
    x = c.ranked(c.floating(x), 2, 5)
    channels, dtype = c[x].shape[1], c.dtype(x)
    statistics = f"{edges.affine(c, (channels,), dtype)}, {edges.affine(c, (channels,), dtype, 'positive')}"
    return f"F.batch_norm({x}, {statistics}, {_affine(c, (channels,), dtype)})"


@row("batch_norm_train", REDUCTION, wants="image", power=2)
def _batch_norm_train(c, x):
    x = c.ranked(c.floating(x), 2, 5)
    return f"F.batch_norm({x}, None, None, {_affine(c, (c[x].shape[1],), c.dtype(x))}, True)"


@row("batch_stats", REDUCTION, wants="image", power=2)
def _batch_stats(c, x):
    x = c.ranked(c.floating(x), 2, 5)
    return f"F.batch_norm({x}, None, None, training=True, eps=1e-3)"


@row("group_norm", REDUCTION, wants="image", power=2)
def _group_norm(c, x):
    x = c.ranked(c.floating(x), 2, 4)
    channels = c[x].shape[1]
    groups = c.rng.choice([g for g in (1, 2, 3, 4, 8, channels) if channels and channels % g == 0]) if channels else 1
    return f"F.group_norm({x}, {groups}, {_affine(c, (channels,), c.dtype(x))})"


@row("attention", PRODUCT, wants="line")
def _attention(c, x):
    x = c.ranked(c.floating(x), 3, 4)
    if c.overlaps(x):  # torch's kernel reads memory that nobody wrote where rows of the query overlap
        x = c.let(f"{x}.contiguous()")
    *batch, rows, width = c[x].shape
    dtype, columns = c.dtype(x), rows if c.twice else c.choose(1, 3, 8, 17)
    if min([rows, width, *batch]) == 0 or max(batch) > 64 or rows > 600:
        raise Unsuitable
    if c.twice:
        q = k = v = x
    else:
        q, k, v = (x, *(c.argument((*batch, columns, width), dtype, formats=values.WRITABLE) for _ in range(2)))
        if c.chance(0.3):  # the operand is the keys, or the values
            q, k, v = c.choose(
                (
                    c.argument((*batch, 5, width), dtype, formats=values.WRITABLE),
                    x,
                    c.argument((*batch, rows, width), dtype, formats=values.WRITABLE),
                ),
                (
                    c.argument((*batch, 5, width), dtype, formats=values.WRITABLE),
                    c.argument((*batch, rows, width), dtype, formats=values.WRITABLE),
                    x,
                ),
            )
    form = c.rng.randint(0, 3)
    if form == 0:
        return f"F.scaled_dot_product_attention({q}, {k}, {v}, is_causal=True)"
    if form == 1:
        mask = c.argument((c[q].shape[-2], c[k].shape[-2]), dtype, "grid")
        return f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={mask})"
    return f"F.scaled_dot_product_attention({q}, {k}, {v})"


# ---- Choosing elements


def positions(c, shape, limit, dtypes=("i64",)):
    if limit < 1:
        raise Unsuitable
    return c.argument(shape, c.choose(*dtypes), limit, ["contiguous", "transposed", "sliced", "expanded", "flipped"])


@row("embedding", wants="matrix")
def _embedding(c, x):
    if x in c.places:
        return f"F.embedding({x}, {c.weight((c.places[x], c.choose(1, 4, 8, 17)), c.choose('f32', 'f64', 'bf16'))})"
    if c.chance(0.4):
        x = c.ranked(x, 1)
        return f"{x}[{positions(c, c.choose((3,), (2, 3), (1,)), c[x].shape[0])}]"
    x = c.ranked(x, 2, 2)
    return f"F.embedding({positions(c, c.choose((3,), (2, 3), (5, 1)), c[x].shape[0], ('i64', 'i32'))}, {x})"


@row("index_select")
def _index_select(c, x):
    x = c.ranked(x, 1)
    d = c.dim(x)
    if x in c.places and c[x].dim() == 1:
        return f"torch.index_select({c.argument((3, c.places[x]), 'f32')}, 1, {x})"
    if c[x].is_contiguous() and c.chance(0.2):
        return f"{x}.flip({d})"
    return f"torch.index_select({x}, {d}, {positions(c, (c.choose(1, 3, 7),), c[x].shape[d], ('i64', 'i32'))})"


@row("gather")
def _gather(c, x):
    x = c.ranked(x, 1)
    d = c.dim(x)
    shape = list(c[x].shape)
    if x in c.places:
        table = list(shape)
        table[d] = c.places[x]
        return f"torch.gather({c.argument(table, 'f32')}, {d}, {x})"
    limit, shape[d] = shape[d], c.choose(1, 2, 5)
    if c.chance(0.3):
        return f"torch.take_along_dim({x}, {positions(c, shape, limit)}, {d})"
    shape = [n if i == d % len(shape) else c.rng.randint(min(1, n), n) for i, n in enumerate(shape)]
    return f"torch.gather({x}, {d}, {positions(c, shape, limit)})"


def own_copy(c, x):
    """Something that may be written in place."""
    return x if c.writable(x) and c.chance(0.5) else c.let(f"{x}.clone()")


@row("index_put")
def _index_put(c, x):
    x = own_copy(c, c.nonempty(c.ranked(x, 1)))
    # each element at most once: which of equal positions wins is not defined in torch
    if c.overlaps(x):
        x = c.let(f"{x}.contiguous()")
    rows = c[x].shape[0]
    shape = c.rng.choice([s for s in ((1,), (3,), (2, 2)) if math.prod(s) <= rows])
    at = c._declare(c.arguments, "x", f"torch.randperm({rows})[:{math.prod(shape)}].reshape({shape})")
    value = c.choose("2", "1") if c.chance(0.3) else c.argument((*shape, *c[x].shape[1:]), c.dtype(x))
    if c[at].dim() + c[x].dim() > 8:
        raise Unsuitable
    c.line(f"{x}[{at}] = {value}")
    return x


@row("view_put")
def _view_put(c, x):
    x = own_copy(c, c.nonempty(c.ranked(x, 1)))
    keys = []
    for n in c[x].shape:
        start = c.rng.randrange(n)
        keys.append(c.choose(":", f"{start}:", f"{start}", "::2"))
    key = ", ".join(keys[: c.rng.randint(1, len(keys))])
    shape = tuple(eval(f"{x}[{key}]", c.space).shape)
    c.line(f"{x}[{key}] = {c.choose('2', '1') if c.chance(0.3) else c.argument(shape, c.dtype(x))}")
    return x


def _sortable(c, x):
    if c.dtype(x) == "bool":
        x = c.integral(x)
    return c.nonempty(c.ranked(x, 1))


@row("argsort")
def _argsort(c, x):
    x = _sortable(c, x)
    d = c.dim(x)
    form = c.choose(
        "torch.argsort({x}, {d})",
        "torch.argsort({x}, {d}, descending=True, stable=True)",
        "torch.sort({x}, {d})[0]",
        "torch.sort({x}, dim={d}, stable=True)[1]",
    )
    c.limit = None if "[0]" in form else c[x].shape[d]
    return form.format(x=x, d=d)


@row("argtopk")
def _argtopk(c, x):
    x = _sortable(c, x)
    d = c.dim(x)
    which = c.rng.randint(0, 1)
    c.limit = c[x].shape[d] if which else None
    return f"torch.topk({x}, {c.rng.randint(1, c[x].shape[d])}, {d}, {c.chance(0.7)})[{which}]"


@row("histc")
def _histc(c, x):
    return f"torch.histc({c.nonempty(c.floating(x, ('f32',)))}, {c.choose(1, 4, 9)}, -2, 3)"


# ---- Joining


@row("cat")
def _cat(c, x):
    x = c.ranked(x, 1)
    d = c.dim(x)
    if c.chance(0.2):
        return f"{x}.roll({c.choose(1, -2, 5)}, {d})"
    if c.twice:
        return f"torch.cat([{x}, {x}], {d})"
    shape = list(c[x].shape)
    if c.chance(0.2):
        return f"torch.stack([{x}, {c.argument(shape, c.dtype(x))}], {c.rng.randint(0, len(shape))})"
    shape[d] = c.choose(1, 2, 5, 8)
    parts = [x, c.argument(shape, c.dtype(x) if c.chance(0.85) else c.choose("f32", "i32", "f64", "f16"))]
    c.rng.shuffle(parts)
    return f"torch.cat([{', '.join(parts)}], {d})"


@row("pad")
def _pad(c, x):
    x = c.ranked(x, 1)
    if c.chance(0.3) and (by := edges.pads(c, x)):
        return f"F.pad({x}, {by})"
    count = c.rng.randint(1, min(3, c[x].dim()))
    pads = tuple(
        c.choose(0, 1, 1, 2, 3, -1) if c[x].shape[-1 - i // 2] > 2 else c.choose(0, 1, 2) for i in range(2 * count)
    )
    if max(pads) <= 0:
        pads = (1, *pads[1:])
    return f"F.pad({x}, {pads}{c.choose('', ', value=2')})"


row("tril")(lambda c, x: "{x}.tril({d})".format(x=c.ranked(x, 2), d=c.choose("", "1", "-1")))
row("triu")(lambda c, x: "{x}.triu({d})".format(x=c.ranked(x, 2), d=c.choose("", "1", "-2")))


@row("full")
def _full(c, x):
    number = "2" if c.dtype(x) not in values.FLOATS else c.choose("2", "0.5")
    if c.chance(0.3):
        return f"torch.full({tuple(c[x].shape)}, {number}) + {x}"
    return c.choose(
        "torch.full_like({x}, {n}, memory_format=torch.contiguous_format)",
        "torch.zeros_like({x}, memory_format=torch.contiguous_format) + {x}",
        "{x}.new_ones({s}) * {x}",
    ).format(x=x, n=number, s=tuple(c[x].shape))


@row("iota")
def _iota(c, x):
    x = c.ranked(x, 1)
    n = c[x].shape[-1]
    return c.choose(
        f"{x} + torch.arange({n})",
        f"torch.arange({n}) < {x}",
        f"torch.arange(3, {3 + 2 * n}, 2, dtype=torch.float32) * {x}",
        *[f"{x} * torch.eye({n})"] * (n < 500),  # a square of what may be a long row
    )
