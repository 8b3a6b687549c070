"""The same rows at the edges of what they take, now and then (Draw.edges): windows as large as images, dimensions that
are named twice or not at all, weights that lie strangely, operands without dimensions or of another dtype, every kind
of index.

What ends torch's own process is not drawn: windows of a dilated `max_pool2d` that lie wholly in its padding, `circular`
with a negative padding, an index of `index_add` that is out of range, strange strides of a dilated convolution's
weight, be it of sizes of 1."""

import functools

from .draw import DTYPES, INTEGERS
from .vocabulary import ROWS, index_for
from .vocabulary_nn import assigned, image
from .vocabulary_torchs import PARAMETERS  # noqa: F401 (its rows are among those that are wrapped here)


def also(names, p=1.0):
    """The function makes arguments of these rows out of a Draw and what the rows make as a rule."""

    def register(function):
        for name in names.split():
            ROWS[name] = functools.partial(_either, ROWS[name], function, p)
        return function

    return register


def _either(plain, edges, p, d):
    return edges(d, plain) if d.edges and d.chance(p * d.edges) else plain(d)


# ---- operands


def relaid(d, name, writes=False):
    """A tensor of the same sizes and dtype that lies in memory as few weights do. writes: each element is another."""
    shape, dtype = list(d[name].shape), str(d[name].dtype)
    if not shape:
        return d.step_of(f"{d.input((3,), dtype, 'grid', plain=True)}[1]")
    at = d.rng.randrange(len(shape))
    kind = d.pick("expanded", "stepped", "transposed", "shifted", "wide") if not writes else d.pick("stepped", "wide")
    values = "positive" if writes else d.pick("grid", "normal")
    more = list(shape)
    if kind == "expanded":
        more = [1 if i == at or d.chance(0.3) else n for i, n in enumerate(shape)]
        text = f".expand({', '.join(map(str, shape))})"
    elif kind == "stepped":
        more[at] = 2 * shape[at]
        text = f"[{':, ' * at}{d.pick('', '1')}::2]"
    elif kind == "transposed" and len(shape) > 1:
        other = d.rng.choice([i for i in range(len(shape)) if i != at])
        more[at], more[other] = more[other], more[at]
        text = f".transpose({at}, {other})"
    elif kind == "wide":
        more = [*shape, 3]
        text = f"[..., {d.pick(0, 1, -1)}]"
    else:
        more[0] = shape[0] + 3
        text = "[3:]"
    return d.step_of(f"{d.input(tuple(more), dtype, values, plain=True)}{text}")


WEIGHTS = ("weight", "bias", "running_mean", "running_var", "w_ih", "w_hh", "b_ih", "b_hh", "mat2", "vec", "qkv_weight",
           "qkv_bias", "proj_weight", "proj_bias", "norm_weight_1", "norm_bias_1", "norm_weight_2", "norm_bias_2",
           "ffn_weight_1", "ffn_bias_1", "ffn_weight_2", "ffn_bias_2", "hx", "x2", "target", "key", "value")


@also("layer_norm rms_norm batch_norm group_norm instance_norm linear prelu conv1d conv2d conv3d conv_transpose1d "
      "conv_transpose2d embedding lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _native_multi_head_attention "
      "_transformer_encoder_layer_fwd mm bmm mv dot addmm addmv baddbmm cross_entropy_loss nll_loss_nd mse_loss "
      "l1_loss scaled_dot_product_attention")
def laid_strangely(d, plain):
    given = plain(d)
    if given.get("mask_type") is not None:
        return given
    trains = given.get("training") == "True" or given.get("use_input_stats") == "True"
    for name in WEIGHTS:
        if name == "weight" and given.get("dilation") is not None:
            continue
        old = given.get(name)
        if old in d.pool and d[old].dtype.is_floating_point and d.chance(0.7):
            given[name] = relaid(d, old, writes=trains and name.startswith("running") or name == "running_var")
    return given


@also("add sub subtract rsub mul multiply true_divide truediv div divide atan2 arctan2 maximum minimum fmax fmin eq ne "
      "not_equal lt less le less_equal gt greater ge greater_equal logical_and logical_or logical_xor bitwise_and "
      "bitwise_or bitwise_xor and or xor floor_divide floordiv remainder mod fmod pow where masked_fill clamp clip "
      "clamp_min clamp_max lerp addcmul addcdiv copysign lshift rshift fill copy isin cat stack outer matmul tensordot "
      "is_same_size type_as to", 0.7)
def without_dimensions(d, plain):
    """Operands without dimensions, of any dtype: they count less where dtypes are promoted."""
    given = plain(d)
    names = [n for n, text in given.items() if text in d.pool and n not in ("condition", "mask")]
    for name in d.rng.sample(names, min(len(names), d.pick(1, 1, 2))):
        made = d.tensor(shape=() if d.chance(0.85) else (1,), dtype=d.rng.choice(DTYPES[:12]), reuse=0.2)
        given |= {n: made for n in names if given[n] == given[name]}
    return given


EMPTY = [name for name in ROWS if name not in ("item", "_grouped_mm", "__bool__", "__float__", "__int__", "__index__")]


@also(" ".join(EMPTY), 0.25)
def without_elements(d, plain):
    """What is drawn without a wish has a size of 0."""
    d.hollow = True
    try:
        return plain(d)
    finally:
        d.hollow = False


@also(" ".join(EMPTY), 0.05)
def of_complex(d, plain):
    before, d.main = d.main, d.main or "torch.complex64"
    try:
        return plain(d)
    finally:
        d.main = before


# ---- dimensions


@also("sum mean amax amin all any argmax argmin logsumexp max min var std var_mean std_mean norm vector_norm "
      "count_nonzero squeeze prod softmax log_softmax cumsum sort argsort normalize unsqueeze unbind flatten", 0.8)
def odd_dimensions(d, plain):
    given = plain(d)
    x = given.get("input")
    if x not in d.pool or "dim" not in given and "start_dim" not in given or given.get("other") is not None:
        return given
    rank = d[x].dim()
    some = [d.rng.randrange(-max(rank, 1), max(rank, 1)) for _ in range(d.pick(1, 1, 2, 3))]
    dim = d.pick("[]", "()", "torch.Size([])", "None", str(some), str([*some, some[0]]), str(tuple(some)),
                 str([some[0], some[0] - rank if some[0] >= 0 else some[0] + rank]), str(some[0]),
                 str(tuple(range(rank))), str(list(range(-rank, 0))), str(rank), "True", "0.0", f"[{-rank - 1}]")
    names = [n for n in ("dim", "start_dim", "end_dim") if n in given]
    return given | {d.rng.choice(names): dim}


@also("permute flip movedim moveaxis roll transpose swapdims", 0.5)
def repeated_dimensions(d, plain):
    given = plain(d)
    x = given["input"]
    if x not in d.pool:
        return given
    rank = d[x].dim()
    some = [d.rng.randrange(-max(rank, 1), max(rank, 1)) for _ in range(d.pick(0, 1, 2, 3))]
    if "source" in given:
        return given | {"source": d.sizes(some), "destination": d.sizes(d.rng.sample(some, len(some)))}
    if "shifts" in given:
        return given | {"shifts": d.sizes(d.pick(-7, 0, 3, 10**9) for _ in some), "dims": d.sizes(some)}
    return given | ({"dims": [str(n) for n in some]} if "dims" in given else {})


# ---- windows


def extents(d, spatial, draw):
    """One number, or one for each dimension."""
    made = [draw(i) for i in range(spatial)]
    return str(made[0]) if spatial == 1 and d.chance(0.7) or len(set(made)) == 1 and d.chance(0.4) else d.sizes(made)


def numbers(text, spatial):
    made = eval(text)  # noqa: S307
    return made if isinstance(made, tuple) else (made,) * spatial


def convolution(d, spatial, transposed):
    groups, inner, outer = d.pick(1, 1, 2, 3, 5, 7, 16), d.pick(1, 1, 2, 3, 5), d.pick(1, 1, 2, 3, 4, 9)
    size = [d.pick(1, 2, 3, 5, 6, 11) for _ in range(spatial)]
    batch = [d.pick(1, 2, 3, 0 if d.chance(0.3) else 1)] if d.chance(0.85) else []
    if d.chance(0.05):
        size[0] = 0
    padding = extents(d, spatial, lambda i: d.pick(0, 0, 1, 2, 3, 4, 5, 9))
    dilation = extents(d, spatial, lambda i: d.pick(1, 1, 2, 3, 4, 5))
    stride = extents(d, spatial, lambda i: d.pick(1, 2, 3, 4, 5, 7))
    pads, steps = numbers(padding, spatial), numbers(dilation, spatial)
    kernel = []
    for i, n in enumerate(size):  # as large as what it sees, one larger, or small
        most = n if transposed else (n + 2 * pads[i] - 1) // steps[i] + 1
        kernel.append(max(d.pick(1, 2, 3, 4, 5, most, most, most - 1, most + (1 if d.chance(0.3) else 0)), 1))
    many, filters = groups * inner, groups * outer
    x = d.floating(shape=(*batch, many, *size))
    weight = d.finite(shape=(many, outer, *kernel) if transposed else (filters, inner, *kernel), dtype=d.like(x))
    if max(steps) > 1:
        weight = d.step_of(f"{weight}.clone(memory_format=torch.contiguous_format)")
    elif d.chance(0.4):
        weight = relaid(d, weight)
    limit = [max(s, t) for s, t in zip(numbers(stride, spatial), steps)]
    if not transposed and d.chance(0.12):
        padding = d.pick("'same'", "'valid'")
    return {
        "input": x, "weight": weight,
        "bias": d.optional(lambda: relaid(d, d.finite(shape=(filters,), dtype=d.like(x))), 0.5),
        "stride": d.optional(lambda: stride, 0.7), "padding": padding, "dilation": dilation,
        "groups": str(groups + (1 if d.chance(0.02) else 0)) if groups > 1 or d.chance(0.2) else None,
        "output_padding": d.optional(lambda: extents(d, spatial, lambda i: d.rng.randrange(limit[i] + d.chance(0.1)))),
    }  # fmt: skip


for name in "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d":
    also(name, 0.7)(lambda d, plain, name=name: convolution(d, int(name[-2]), "transpose" in name))


def windows(d, x, spatial):
    """Kernel, stride, padding of a pool at their limits: the whole image, half of the kernel, one more than that."""
    size = list(d[x].shape)[-spatial:]
    kernel = extents(d, spatial, lambda i: max(d.pick(1, 2, 3, 4, 5, size[i], size[i] + 1, size[i] + 2), 1))
    halves = [n // 2 for n in numbers(kernel, spatial)]
    padding = extents(d, spatial, lambda i: d.pick(halves[i], halves[i], 0, halves[i] + (1 if d.chance(0.1) else 0)))
    stride = extents(d, spatial, lambda i: d.pick(1, 2, 3, 4, 5, 7))
    return kernel, d.optional(lambda: stride, 0.75), padding


def pool(d, spatial):
    x = image(d, spatial + d.pick(1, 2, 2))
    kernel, stride, padding = windows(d, x, spatial)
    dilation = d.optional(lambda: extents(d, spatial, lambda i: d.pick(1, 2, 3)), 0.25)
    if dilation is not None and max(numbers(dilation, spatial)) > 1:
        padding = None
    return {
        "input": x, "kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation,
        "ceil_mode": d.optional(lambda: d.pick("True", "True", "False"), 0.8),
        "count_include_pad": d.optional(d.flag), "return_indices": d.optional(d.flag, 0.2),
        "divisor_override": d.optional(lambda: d.pick("1", "2", "-3", "7", "0", "None"), 0.3),
    }  # fmt: skip


for name in "max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d":
    also(name, 0.8)(lambda d, plain, name=name: pool(d, int(name[-2])))


@also("adaptive_avg_pool1d adaptive_avg_pool2d", 0.7)
def adaptive(d, plain):
    given = plain(d)
    size = list(d[given["input"]].shape)
    return given | {"output_size": d.pick("0", "9", "None", "-1", "(0, 2)", "(None, None)", "(17, 1)", str(size[-1]),
                                          str((size[-1] + 1, size[-1])), "[2]", "(2, 3, 4)")}


@also("interpolate", 0.7)
def interpolate(d, plain):
    given = plain(d)
    if given["size"] is None:
        return given | {"scale_factor": d.pick("0.3", "1.0", "1", "(0.5, 3.0)", "0.1", "1.9999", "7", "0"),
                        "recompute_scale_factor": d.optional(d.flag, 0.4)}
    return given | {"size": d.pick("1", "0", "17", "(1, 9)", "(9, 1)", "[3]", "None", "(2, 2, 2)")}


@also("pad", 0.8)
def pad(d, plain):
    """Up to what an image holds, and one more."""
    mode, spatial = d.pick("constant", "reflect", "replicate", "circular"), d.pick(1, 2, 2, 3)
    x = image(d, spatial + d.pick(1, 2, 2))
    by = []
    for n in reversed(d[x].shape[-spatial:]):
        limit = {"reflect": n - 1, "circular": n}.get(mode, n + 2)
        by += [d.pick(0, 1, limit, limit, limit - 1, limit + (1 if d.chance(0.15) else 0)) for _ in range(2)]
    by = [max(n, 0) for n in by]
    if mode in ("constant", "replicate") and d.chance(0.2):
        by[d.rng.randrange(len(by))] = -1
    return {"input": x, "pad": d.sizes(by) if d.chance(0.7) else str(by), "mode": f"'{mode}'",
            "value": d.optional(d.number, 0.3) if mode == "constant" else d.optional(lambda: "0", 0.1)}


# ---- indices


def part(d, n):
    """What stands for one dimension of size n: (text, the number of dimensions that it takes)."""
    r = d.rng.random()
    if r < 0.3:
        bounds = ["", "0", "1", "-1", str(n), str(-n), str(n + 3), str(-n - 3), str(n // 2), "True", "None"]
        return f"{d.pick(*bounds)}:{d.pick(*bounds)}:{d.pick('', '1', '2', '3', str(n), str(n + 1), '2**40')}", 1
    if r < 0.4:
        return d.pick("None", "...", "True", "False", "np.newaxis"), 0
    if r < 0.5:
        return d.pick("-1", "0", str(n - 1), str(-n), f"np.int64({n - 1})", f"slice({n // 2}, None)", "slice(None)"), 1
    if r < 0.75 and n:
        index = index_for(d, n, d.pick((), (), (1,), (2,), (3, 1), (2, 2), (0,), (1, 1)),
                          d.pick("torch.int64", "torch.int64", *INTEGERS))
        if d[index].dtype.is_signed and d.chance(0.5):
            index = f"({index} - {n})"
        return index, 1
    if r < 0.9:
        kind = d.pick("torch.bool", "torch.bool", "torch.uint8", "torch.int32")
        return d.tensor(shape=(n + (1 if d.chance(0.03) else 0),), dtype=kind, reuse=0.3), 1
    if n:
        some = [d.rng.randrange(-n, n) for _ in range(d.pick(1, 2, 3))]
        return d.pick(str(some), f"[{some}]", f"np.array({some})", f"torch.tensor({some})", f"range({min(n, 2)})",
                      str([k % 2 == 0 for k in range(n)]), f"torch.tensor({some[0]})", "[]",
                      f"np.array({some}, dtype=np.int32)"), 1
    return ":", 1


def any_key(d, x):
    rank, parts, dim = d[x].dim(), [], 0
    while dim < rank and len(parts) < 6 and (d.chance(0.8) or not parts):
        text, many = part(d, d[x].shape[dim])
        if text != "..." or text not in parts:
            parts.append(text)
        dim += many
    if d.chance(0.15):
        parts = ["...", *[p for p in parts if p != "..."]][-rank - 1:]
    if d.chance(0.15):
        parts.append("None")
    text = ", ".join(parts) or d.pick("...", "None", "()", "True", "False", "torch.tensor(True)", "torch.tensor(0)")
    return f"[{text}]"[1:-1] if len(parts) != 1 or d.chance(0.8) else f"{text},"


@also("getitem", 0.9)
def getitem(d, plain):
    x = d.tensor()
    return {"self": x, "key": any_key(d, x)}


@also("setitem", 0.9)
def setitem(d, plain):
    x = d.tensor()
    where = any_key(d, x)
    value, there = assigned(d, x, where)
    if there is not None and d.chance(0.15):
        value = d.pick(f"{x}[{where}].flip(0)" if there.dim() else x, f"{value}.tolist()", "[1]", "None")
    return {"self": x, "key": where, "value": value}


@also("index_select gather take_along_dim scatter index_fill index_copy embedding", 0.5)
def negative_index(d, plain):
    """Indices below zero, as views, or without dimensions."""
    given = plain(d)
    name = "input" if "padding_idx" in given else "index"
    old = given.get(name)
    if old not in d.pool:
        return given
    text = d.pick(f"({old} - 1)", f"{old}[..., :1]", f"{old}.flatten()[:1].squeeze()", f"{old}.expand(2, *{old}.shape)",
                  f"{old}.flip(0)" if d[old].dim() else old, f"{old}.long()", f"{old}.int()", f"{old}.short()")
    return given | {name: text} | ({"indices": text} if given.get("indices") == old else {})
