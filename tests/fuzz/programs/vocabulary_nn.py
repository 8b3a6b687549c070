"""The vocabulary's other half: layers, pooling, attention, recurrences; making tensors, reading and writing them."""

from .draw import DTYPES
from .vocabulary import FORMATS, key, rows

# ---- normalisation


def vector(d, n, x, p=0.7):
    return d.optional(lambda: d.finite(shape=(n,), dtype=d.like(x)), p)


@rows("layer_norm rms_norm")
def layer_norm(d):
    x = d.floating(least=1)
    many = d.rng.randint(1, min(2, d[x].dim()))
    tail = tuple(d[x].shape[-many:])
    given = {"input": x, "normalized_shape": d.pick(d.sizes(tail), str(list(tail))),
             "eps": d.optional(lambda: d.pick("1e-5", "1e-3"), 0.4)}
    return given | {name: d.optional(lambda: d.finite(shape=tail, dtype=d.like(x)), 0.6) for name in ("weight", "bias")}


def image(d, rank=4, channels=None, **options):
    """Batches of images or rows: small, with sizes of 1 now and then."""
    shape = [d.pick(1, 1, 2, 3), channels or d.pick(1, 2, 3, 4, 6, 8),
             *(d.pick(1, 2, 4, 5, 7, 8, 16) for _ in range(rank - 2))]
    return d.floating(shape=shape, **options) if d.chance(0.7) or channels else d.floating(rank=rank, **options)


@rows("batch_norm")
def batch_norm(d):
    x = image(d, d.pick(2, 3, 4, 4, 4, 5))
    n = d[x].shape[1]
    given = {name: vector(d, n, x, 0.9 if name.startswith("running") else 0.6)
             for name in ("running_mean", "weight", "bias")}
    given["running_var"] = d.input((n,), d.like(x), "positive") if d.chance(0.95) else None
    training = d.pick("False", "False", "False", "True")
    return given | {"input": x, "training": training, "momentum": d.pick("0.1", "0.7"), "eps": d.pick("1e-5", "1e-3"),
                    "cudnn_enabled": "True"}


@rows("group_norm")
def group_norm(d):
    x = image(d, d.pick(2, 3, 4, 4, 5))
    n = d[x].shape[1]
    groups = d.rng.choice([g for g in (1, 2, 3, 4, 8) if n and n % g == 0] or [1])
    return {"input": x, "num_groups": str(groups), "weight": vector(d, n, x), "bias": vector(d, n, x),
            "eps": d.optional(lambda: "1e-3", 0.3)}


@rows("instance_norm")
def instance_norm(d):
    x = image(d, d.pick(2, 3, 3, 4, 4, 5))
    n = d[x].shape[1]
    by_batch = d.chance(0.85)
    running = None if by_batch and d.chance(0.9) else d.input((n,), d.like(x), "positive")
    return {"input": x, "running_mean": running, "running_var": running, "weight": vector(d, n, x, 0.5),
            "bias": vector(d, n, x, 0.5), "use_input_stats": str(by_batch), "momentum": d.pick("0.1", "0.7"),
            "eps": d.pick("1e-5", "1e-3"), "cudnn_enabled": "True"}


# ---- convolution and pooling


def window(d, spatial, options, p):
    def text():
        return str(d.rng.choice(options)) if d.chance(0.6) else d.sizes(d.rng.choice(options) for _ in range(spatial))

    return d.optional(text, p)


def convolution(d, spatial, transposed):
    groups = d.pick(1, 1, 1, 2, 3)
    channels, filters = groups * d.pick(1, 2, 4), groups * d.pick(1, 2, 3, 8)
    shape = [d.pick(1, 2), channels, *(d.pick(1, 3, 4, 5, 8, 9) for _ in range(spatial))]
    if d.chance(0.15):
        shape = shape[1:]
    x = d.floating(shape=shape)
    kernel = [d.pick(1, 1, 2, 3) for _ in range(spatial)]
    weight = d.finite(shape=(channels, filters // groups, *kernel) if transposed
                      else (filters, channels // groups, *kernel), dtype=d.like(x))
    padding = window(d, spatial, [0, 1, 2], 0.5)
    if not transposed and d.chance(0.1):
        padding = d.pick("'same'", "'valid'")
    return {
        "input": x, "weight": weight, "bias": vector(d, filters, x, 0.5), "stride": window(d, spatial, [1, 2], 0.5),
        "padding": padding,
        "dilation": window(d, spatial, [1, 2], 0.25), "groups": str(groups) if groups > 1 else None,
        "output_padding": window(d, spatial, [0, 1], 0.3),
    }  # fmt: skip


@rows("conv1d")
def conv1d(d):
    return convolution(d, 1, False)


@rows("conv2d")
def conv2d(d):
    return convolution(d, 2, False)


@rows("conv_transpose1d")
def conv_transpose1d(d):
    return convolution(d, 1, True)


@rows("conv_transpose2d")
def conv_transpose2d(d):
    return convolution(d, 2, True)


def pool(d, spatial):
    x = image(d, d.pick(spatial + 1, spatial + 2, spatial + 2))
    return {
        "input": x, "kernel_size": window(d, spatial, [1, 2, 3], 1), "stride": window(d, spatial, [1, 2, 3], 0.5),
        "padding": window(d, spatial, [0, 1], 0.4),
        "dilation": window(d, spatial, [1, 2], 0.2), "ceil_mode": d.optional(d.flag, 0.3),
        "count_include_pad": d.optional(d.flag, 0.3),
        "return_indices": d.optional(d.flag, 0.1), "divisor_override": d.optional(lambda: d.pick("None", "3"), 0.1),
    }  # fmt: skip


@rows("max_pool1d avg_pool1d")
def pool1d(d):
    return pool(d, 1)


@rows("max_pool2d avg_pool2d")
def pool2d(d):
    return pool(d, 2)


@rows("adaptive_avg_pool1d")
def adaptive_avg_pool1d(d):
    return {"input": image(d, d.pick(2, 3, 3)), "output_size": d.pick("1", "2", "3", "7")}


@rows("adaptive_avg_pool2d")
def adaptive_avg_pool2d(d):
    return {"input": image(d, d.pick(3, 4, 4)), "output_size": d.pick("1", "2", "(1, 1)", "(3, 2)", "(None, 2)", "5")}


@rows("interpolate")
def interpolate(d):
    spatial = d.pick(1, 2, 2, 2)
    mode = d.optional(lambda: d.pick("'nearest'", "'nearest-exact'", "'bilinear'" if spatial == 2 else "'linear'",
                                     "'bicubic'" if spatial == 2 else "'linear'"), 0.8)
    smooth = mode is not None and "nearest" not in mode
    by_size = d.chance(0.5)
    return {
        "input": image(d, spatial + 2), "size": window(d, spatial, [1, 2, 5, 8], 1) if by_size else None, "mode": mode,
        "scale_factor": None if by_size else d.pick("2", "2.0", "0.5", "1.5", "3"),
        "align_corners": d.optional(d.flag, 0.4) if smooth or d.chance(0.05) else None,
        "antialias": d.optional(d.flag, 0.05),
    }  # fmt: skip


# ---- attention, gates, losses


@rows("scaled_dot_product_attention")
def attention(d):
    batch = [d.pick(1, 2), d.pick(1, 2, 4)][d.pick(0, 0, 0, 1) :]
    if d.chance(0.1):
        batch = []
    length, keys, width = d.pick(1, 3, 5, 8, 16), d.pick(1, 3, 5, 8, 16), d.pick(1, 4, 8, 16)
    query = d.floating(shape=(*batch, length, width))
    dtype = d.like(query)
    causal = d.chance(0.25)
    mask = d.optional(lambda: d.tensor(shape=[*batch[: d.pick(0, len(batch))], length, keys],
                                       dtype=d.pick("torch.bool", d.floats)), 0.0 if causal else 0.5)
    return {
        "query": query, "key": d.tensor(shape=(*batch, keys, width), dtype=dtype),
        "value": d.tensor(shape=(*batch, keys, d.pick(width, width, 3)), dtype=dtype),
        "attn_mask": mask, "is_causal": "True" if causal else None,
        "scale": d.optional(lambda: d.pick("0.5", "1.0"), 0.2),
    }  # fmt: skip


def attending(d, width, like):
    """What nn.MultiheadAttention has: weights and biases of its projections."""
    shapes = {"qkv_weight": (3 * width, width), "qkv_bias": (3 * width,), "proj_weight": (width, width),
              "proj_bias": (width,)}
    return {name: d.finite(shape=shape, dtype=like) for name, shape in shapes.items()}


def attended(d):
    """A batch of sequences, their width, a number of heads; now and then a mask."""
    heads, length = d.pick(1, 2, 4), d.pick(1, 3, 5, 8)
    width = heads * d.pick(1, 2, 4, 8)
    x = d.floating(shape=(d.pick(1, 2, 3), length, width))
    batch, kind = d[x].shape[0], d.pick(None, None, "0", "1", "2")
    shape = {"0": (length, length), "1": (batch, length), "2": (batch, heads, length, length)}.get(kind)
    mask = d.tensor(shape=shape, dtype=d.pick("torch.bool", "torch.bool", d.floats)) if shape else None
    return x, width, heads, {"mask": mask, "mask_type": kind}


@rows("_native_multi_head_attention")
def native_attention(d):
    x, width, heads, mask = attended(d)
    other = d.tensor(shape=d[x].shape, dtype=d.like(x)) if d.chance(0.1) else x
    return {"query": x, "key": other, "value": other, "embed_dim": str(width), "num_head": str(heads),
            **attending(d, width, d.like(x)), "mask": mask["mask"], "need_weights": d.optional(d.flag),
            "average_attn_weights": d.optional(d.flag), "mask_type": mask["mask_type"]}


@rows("_transformer_encoder_layer_fwd")
def encoder_layer(d):
    x, width, heads, mask = attended(d)
    like, inner = d.like(x), d.pick(1, 4, 8, 16)
    shapes = {"norm_weight_1": (width,), "norm_bias_1": (width,), "norm_weight_2": (width,), "norm_bias_2": (width,),
              "ffn_weight_1": (inner, width), "ffn_bias_1": (inner,), "ffn_weight_2": (width, inner),
              "ffn_bias_2": (width,)}
    return {"src": x, "embed_dim": str(width), "num_heads": str(heads), **attending(d, width, like),
            "use_gelu": d.flag(), "norm_first": d.flag(), "eps": d.pick("1e-5", "1e-3"),
            **{name: d.finite(shape=shape, dtype=like) for name, shape in shapes.items()}, **mask}


@rows("glu")
def glu(d):
    x = d.floating(least=1)
    even = [i for i, n in enumerate(d[x].shape) if n % 2 == 0]
    return {"input": x, "dim": str(d.rng.choice(even)) if even and d.chance(0.9) else None}


@rows("mse_loss l1_loss")
def loss(d):
    x = d.floating()
    y = d.tensor(shape=d[x].shape, dtype=d.like(x)) if d.chance(0.9) else d.partner(x)
    return {"input": x, "target": y, "reduction": d.optional(lambda: d.pick("'none'", "'sum'", "'mean'"), 0.7)}


def alike(d, count):
    """A floating tensor, and others of its shape."""
    x = d.floating()
    return [x, *(d.tensor(shape=d[x].shape, dtype=d.like(x)) if d.chance(0.9) else d.partner(x)
                 for _ in range(count - 1))]


@rows("pairwise_distance cosine_similarity")
def distance(d):
    x, y = alike(d, 2)
    return {"x1": x, "x2": y, "p": d.optional(lambda: d.pick("1.0", "2", "3.0")), "dim": d.optional(lambda: d.dim(x)),
            "eps": d.optional(lambda: "1e-3", 0.3), "keepdim": d.optional(d.flag, 0.3)}


@rows("triplet_margin_loss")
def triplet(d):
    x, y, z = alike(d, 3)
    return {"anchor": x, "positive": y, "negative": z, "margin": "1.0", "p": d.pick("2", "1.0", "2.0"), "eps": "1e-6",
            "swap": d.flag(), "reduction": d.pick("0", "1", "2")}


@rows("margin_ranking_loss")
def margin_ranking(d):
    x, y, z = alike(d, 3)
    return {"input1": x, "input2": y, "target": z, "margin": d.pick("0.0", "0.5"), "reduction": d.pick("0", "1", "2")}


@rows("hinge_embedding_loss")
def hinge_embedding(d):
    x, y = alike(d, 2)
    return {"input": x, "target": f"{y}.sign()", "margin": d.pick("1.0", "0.5"), "reduction": d.pick("0", "1", "2")}


@rows("cosine_embedding_loss")
def cosine_embedding(d):
    x = d.floating(least=1, most=2)
    y = d.tensor(shape=d[x].shape, dtype=d.like(x))
    labels = d.tensor(shape=d[x].shape[:-1], dtype=d.pick(d.like(x), "torch.int64"))
    return {"input1": x, "input2": y, "target": f"{labels}.sign()", "margin": d.pick("0.0", "0.5"),
            "reduction": d.pick("0", "1", "2")}


@rows("poisson_nll_loss")
def poisson_nll(d):
    x, y = alike(d, 2)
    return {"input": x, "target": y, "log_input": d.flag(), "full": d.flag(), "eps": d.pick("1e-8", "0.1"),
            "reduction": d.pick("0", "1", "2")}


@rows("kl_div")
def kl_div(d):
    x, y = alike(d, 2)
    return {"input": x, "target": y, "reduction": d.pick("0", "1", "2"), "log_target": d.optional(d.flag)}


# ---- recurrences


def cell(d, gates, pair=False):
    batch, width, hidden = d.pick(1, 2, 5), d.pick(1, 3, 8), d.pick(1, 4, 8)
    x = d.floating(shape=(batch, width))
    dtype = d.like(x)
    state = [d.tensor(shape=(batch, hidden), dtype=dtype) for _ in range(2 if pair else 1)]
    given = {"input": x, "hx": f"({', '.join(state)})" if pair else state[0]}
    given |= {"w_ih": d.tensor(shape=(gates * hidden, width), dtype=dtype),
              "w_hh": d.tensor(shape=(gates * hidden, hidden), dtype=dtype)}
    if d.chance(0.7):
        given |= {name: d.tensor(shape=(gates * hidden,), dtype=dtype) for name in ("b_ih", "b_hh")}
    return given


@rows("lstm_cell")
def lstm_cell(d):
    return cell(d, 4, True)


@rows("gru_cell")
def gru_cell(d):
    return cell(d, 3)


@rows("rnn_tanh_cell rnn_relu_cell")
def rnn_cell(d):
    return cell(d, 1)


def recurrent(d, gates, pair=False):
    batch, steps, width, hidden, layers, both = d.pick(1, 2), d.pick(1, 3, 4), d.pick(1, 4), d.pick(1, 4, 5), d.pick(
        1, 1, 2), d.chance(0.3)
    biases, first = d.chance(0.7), d.chance(0.4)
    x = d.floating(shape=(batch, steps, width) if first else (steps, batch, width))
    dtype = d.like(x)
    runs = layers * (2 if both else 1)
    state = [d.tensor(shape=(runs, batch, hidden), dtype=dtype) for _ in range(2 if pair else 1)]
    weights = []
    for layer in range(layers):
        for _ in range(2 if both else 1):
            wide = width if layer == 0 else hidden * (2 if both else 1)
            weights += [d.tensor(shape=(gates * hidden, wide), dtype=dtype),
                        d.tensor(shape=(gates * hidden, hidden), dtype=dtype)]
            weights += [d.tensor(shape=(gates * hidden,), dtype=dtype) for _ in range(2 if biases else 0)]
    listed = f"[{', '.join(weights)}]"
    return {
        "input": x, "hx": f"[{', '.join(state)}]" if pair else state[0], "params": listed, "has_biases": str(biases),
        "num_layers": str(layers), "dropout": d.pick("0.0", "0.0", "0.3"),
        "train": d.pick("False", "False", "True"), "bidirectional": str(both), "batch_first": str(first),
    }  # fmt: skip


@rows("rnn_tanh rnn_relu")
def rnn(d):
    return recurrent(d, 1)


@rows("gru")
def gru(d):
    return recurrent(d, 3)


@rows("lstm")
def lstm(d):
    return recurrent(d, 4, True)


# ---- made from nothing


def options(d):
    return {"dtype": d.optional(lambda: d.pick(*DTYPES[:10]), 0.5),
            "device": d.optional(lambda: d.pick("'cpu'", "torch.device('cpu')"), 0.15)}


def some_sizes(d):
    return [str(d.pick(0, 1, 2, 3, 5)) for _ in range(d.rng.randint(0, 4))]


@rows("zeros ones full new_zeros new_ones new_full")
def constant(d):
    return {"self": d.tensor(), "size": some_sizes(d), "fill_value": d.number()} | options(d)


@rows("zeros_like ones_like full_like")
def like(d):
    return {"input": d.tensor(), "fill_value": d.number(),
            "memory_format": d.optional(lambda: d.pick(*FORMATS), 0.3)} | options(d)


@rows("empty empty_like new_empty")
def empty(d):
    """What they hold means nothing: only what they look like is read."""
    return {"self": d.tensor(), "input": d.tensor(), "size": some_sizes(d),
            "memory_format": d.optional(lambda: d.pick(*FORMATS), 0.3)} | options(d)


@rows("scalar_tensor tensor as_tensor")
def scalar_tensor(d):
    data = d.number() if d.chance(0.6) else d.pick("[]", "[1, 2]", "[[1.5], [2]]", "[True, False]", f"{d.tensor()}",
                                                   f"{d.tensor()}.detach().numpy()")
    return {"s": d.number(), "data": data} | options(d)


@rows("arange")
def arange(d):
    step = d.optional(lambda: d.pick("1", "2", "-1", "0.5", "3"), 0.4)
    return {"start": d.optional(lambda: d.pick("0", "1", "-3", "2.0", "5"), 0.6),
            "end": d.pick("5", "0", "10", "3.0", "-2", "7.5"), "step": step} | options(d)


@rows("eye")
def eye(d):
    return {"n": d.pick("0", "1", "3", "4"), "m": d.optional(lambda: d.pick("0", "1", "5"), 0.4)} | options(d)


# ---- read and written


@rows("""size stride dim ndimension nelement element_size is_floating_point is_signed is_complex is_conj is_neg get_device is_contiguous len
      iter tolist numpy array requires_grad""")
def question(d):
    x = d.tensor(least=0)
    return {
        "self": x, "input": x, "dim": d.optional(lambda: d.dim(x)),
        "memory_format": d.optional(lambda: d.pick(*FORMATS[:1], *FORMATS[2:]), 0.5),
        "requires_grad": "False", "force": d.optional(d.flag, 0.3),
    }  # fmt: skip


@rows("is_same_size type_as")
def two(d):
    x = d.tensor()
    return {"self": x, "input": x, "other": d.partner(x)}


@rows("to type")
def to(d):
    x = d.tensor()
    first = d.pick(d.dtype(), d.dtype(), "'cpu'", d.tensor(), "torch.device('cpu')")
    return {
        "self": x, "*1": first if d.chance(0.85) else None,
        "dtype": d.optional(d.dtype, 0.1) if d.chance(0.85) else d.dtype(),
        "copy": d.optional(d.flag, 0.3), "memory_format": d.optional(lambda: d.pick(*FORMATS), 0.1),
    }  # fmt: skip


@rows("item __bool__ __float__ __int__ __index__ is_nonzero")
def element(d):
    x = d.tensor(rank=0) if d.chance(0.6) else d.tensor(shape=(1,) * d.pick(1, 2)) if d.chance(0.8) else d.tensor()
    return {"self": x, "input": x}


@rows("zero")
def zero(d):
    return {"self": d.tensor()}


@rows("fill")
def fill(d):
    x = d.tensor()
    return {"self": x, "value": d.number() if d.chance(0.8) else d.tensor(rank=0)}


@rows("fill_diagonal")
def fill_diagonal(d):
    x = d.tensor(rank=2) if d.chance(0.9) else d.tensor()
    return {"self": x, "fill_value": d.number(), "wrap": d.optional(d.flag, 0.1)}


@rows("copy")
def copy(d):
    x = d.tensor()
    return {"self": x, "src": d.partner(x), "non_blocking": d.optional(d.flag, 0.1)}


def assigned(d, x, where):
    """What is written to x[where]: a number, or a tensor that suits. With what stands there, where it is a tensor."""
    value, part = d.number(), None
    if d.chance(0.6):
        error = d.execute(f"probe = {x}[{where}]")
        part = d.namespace.pop("probe", None) if error is None else None
        if part is not None:
            shape = list(part.shape)[d.pick(0, 0, 0, 1) :]
            value = d.tensor(shape=[n if d.chance(0.8) else 1 for n in shape], dtype=d.like(x))
    return value, part


@rows("setitem")
def setitem(d):
    x = d.tensor()
    where = key(d, x) if d.chance(0.9) else d.tensor(shape=d[x].shape, dtype="torch.bool")
    return {"self": x, "key": where, "value": assigned(d, x, where)[0]}

