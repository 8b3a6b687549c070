"""Modules of torch with drawn options, by the kind of tensor that they take: "rows" (n, c), "sequence" (n, t, c),
"signal" (n, c, l), "image" (n, c, h, w), "volume" (n, c, d, h, w), "tokens" (n, t) of integers. A layer is a function
of the Draw that answers (texts of constructors, text of the call, the result's kind); {0}, {1}... are the modules in
it."""

LAYERS = {kind: [] for kind in ("rows", "sequence", "signal", "image", "volume", "tokens")}
SPACE = {"signal": 1, "image": 2, "volume": 3}
FEATURES, SPATIAL = ("rows", "sequence"), ("signal", "image", "volume")
ALL = (*FEATURES, *SPATIAL)


def layer(*kinds, weight=1):
    def add(function):
        for kind in kinds:
            LAYERS[kind] += [function] * weight
        return function

    return add


def one(constructor, kind=None):
    return [constructor], "{0}(x)", kind


ACTIVATIONS = ("ReLU({p})", "ReLU6({p})", "LeakyReLU({s}{c}{p})", "ELU({s}{c}{p})", "CELU({s}{c}{p})", "SELU({p})",
               "GELU({g})", "SiLU({p})", "Mish({p})", "Hardswish({p})", "Hardsigmoid({p})",
               "Hardtanh(-0.5, 0.75{c}{p})",
               "Sigmoid()", "Tanh()", "Tanhshrink()", "Softsign()", "Softplus({s})", "LogSigmoid()", "Softshrink({s})",
               "Hardshrink({s})", "Threshold(0.1, -0.2{c}{p})", "RReLU({p})", "Identity()", "Softmax(-1)", "Softmin(1)",
               "LogSoftmax(-1)", "PReLU()")


@layer(*ALL, weight=4)
def activation(d):
    place, slope = d.pick("", "", "inplace=True"), d.pick("", "0.3", "0.7")
    text = d.rng.choice(ACTIVATIONS).format(p=place, s=slope, c=", " if place and slope else "", g=d.pick(
        "", "approximate='tanh'"))
    text = text.replace("0.75inplace", "0.75, inplace").replace("-0.2inplace", "-0.2, inplace")
    return one(f"nn.{text}")


@layer(*ALL)
def prelu(d):
    return one(f"nn.PReLU({d.shape[1]})")


@layer(*ALL, weight=2)
def dropout(d):
    names = {1: ("Dropout", "AlphaDropout", "FeatureAlphaDropout"), 3: ("Dropout", "Dropout1d"),
             4: ("Dropout", "Dropout2d"), 5: ("Dropout", "Dropout3d")}
    names = names[1] if d.kind in FEATURES else names[len(d.shape)]
    return one(f"nn.{d.rng.choice(names)}({d.pick(0.1, 0.3, 0.5, 0.0)}{d.pick('', '', ', inplace=True')})")


@layer(*FEATURES, weight=5)
def linear(d):
    return one(f"nn.Linear({d.shape[-1]}, {d.width()}{d.pick('', '', ', bias=False')})")


@layer("image")
def of_channels(d):
    return one(d.pick("nn.Softmax2d()", "nn.GLU(1)" if d.shape[1] % 2 == 0 else "nn.CrossMapLRN2d(3)"))


@layer("rows")
def bilinear(d):
    text = f"nn.Bilinear({d.shape[-1]}, {d.shape[-1]}, {d.width()}{d.pick('', ', bias=False')})"
    return [text], d.pick("{0}(x, x)", "{0}(x, x.tanh())"), None


@layer(*FEATURES, weight=2)
def normalized(d):
    text = f"nn.Linear({d.shape[-1]}, {d.width()})"
    return one(d.pick(f"parametrizations.weight_norm({text}{d.pick('', ', dim=1', ', dim=None')})",
                      f"parametrizations.spectral_norm({text})", f"parametrizations.orthogonal({text})",
                      f"torch.nn.utils.weight_norm({text})", f"torch.nn.utils.spectral_norm({text})"))


@layer(*FEATURES)
def symmetric(d):
    return ["nn.Linear({0}, {0})".format(d.shape[-1])], "{0}(x)", None


@layer(*FEATURES, weight=2)
def own(d):
    n = d.shape[-1]
    return one(d.pick(f"Gate({n})", f"Choice({n}, {d.pick(2, 3)})", f"Stack({n}, {d.pick(1, 2, 3)})",
                      f"Tied({n}, {d.width()})"))


@layer(*FEATURES, weight=2)
def norm_of_features(d):
    n = d.shape[-1]
    shape = d.pick(str(n), str(list(d.shape[1:])))
    return one(d.pick(f"nn.LayerNorm({shape})", f"nn.LayerNorm({n}, eps=1e-3{d.pick(', bias=False', '')})",
                      f"nn.LayerNorm({shape}, elementwise_affine=False)", f"nn.RMSNorm({shape})",
                      f"nn.RMSNorm({n}, eps=1e-4, elementwise_affine={d.flag()})"))


@layer("rows", "signal", "image", "volume", weight=3)
def batch_norm(d):
    rank = max(len(d.shape) - 2, 1)
    options = d.pick("", "", ", affine=False", ", track_running_stats=False", ", momentum=None",
                     ", momentum=0.3, eps=1e-3")
    name = d.pick("BatchNorm", "BatchNorm", "InstanceNorm") if d.kind != "rows" else "BatchNorm"
    if name == "InstanceNorm":
        options = d.pick("", ", affine=True", ", affine=True, track_running_stats=True")
    return one(f"nn.{name}{rank}d({d.shape[1]}{options})")


@layer("rows", *SPATIAL)
def group_norm(d):
    c = d.shape[1]
    groups = d.rng.choice([g for g in (1, 2, 3, 4, c) if c % g == 0])
    return one(f"nn.GroupNorm({groups}, {c}{d.pick('', ', affine=False', ', eps=1e-3')})")


@layer(*SPATIAL)
def response_norm(d):
    return one(f"nn.LocalResponseNorm({d.pick(1, 2, 3)}{d.pick('', ', alpha=0.1, beta=0.5, k=2.0')})")


def convolution_options(d, out, transposed=False):
    c, smallest = d.shape[1], min(d.shape[2:])
    size, rank = d.rng.choice([k for k in (1, 2, 3, 3, 5) if k <= smallest + 1]), SPACE[d.kind]
    options = [str(c), str(out),
               str(size) if d.chance(0.7) else f"({', '.join(str(max(size - (k == 0), 1)) for k in range(rank))},)"]
    groups = [g for g in (1, 2, 3, 4, c) if c % g == 0 and out % g == 0]
    if d.chance(0.3):
        options.append(f"groups={d.rng.choice(groups)}")
    if d.chance(0.35):
        options.append("stride=2")
        if transposed and d.chance(0.5):
            options.append("output_padding=1")
    if d.chance(0.6):
        padding = d.pick(size // 2, size // 2, 1)
        options.append(f"padding={padding}")
        if not transposed and padding and d.chance(0.25) and padding < smallest:
            options.append(f"padding_mode='{d.pick('reflect', 'replicate', 'circular')}'")
    elif d.chance(0.2) and not transposed and "stride=2" not in options:
        options.append("padding='same'")
    if d.chance(0.15):
        options.append("dilation=2")
    return ", ".join([*options, *(["bias=False"] if d.chance(0.3) else [])])


@layer(*SPATIAL, weight=6)
def convolution(d):
    out = d.shape[1] if d.chance(0.4) else d.pick(2, 3, 4, 6, 8)
    text = f"nn.Conv{SPACE[d.kind]}d({convolution_options(d, out)})"
    if d.chance(0.1):
        text = d.pick(f"parametrizations.weight_norm({text})", f"parametrizations.spectral_norm({text})")
    return one(text)


@layer(*SPATIAL, weight=2)
def transposed(d):
    return one(f"nn.ConvTranspose{SPACE[d.kind]}d({convolution_options(d, d.pick(2, 3, 4), transposed=True)})")


@layer(*SPATIAL, weight=3)
def pool(d):
    rank, smallest = SPACE[d.kind], min(d.shape[2:])
    if smallest < 2:
        return one("nn.Identity()")
    size = d.rng.choice([k for k in (2, 2, 3) if k <= smallest])
    more = d.pick("", "", ", stride=1", ", padding=1", ", ceil_mode=True")
    names = [f"nn.MaxPool{rank}d({size}{more}{d.pick('', ', dilation=1')})", f"nn.AvgPool{rank}d({size}{more})",
             f"nn.AdaptiveAvgPool{rank}d({d.pick(1, 2, 3)})", f"nn.AdaptiveMaxPool{rank}d({d.pick(1, 2)})",
             f"nn.LPPool{rank}d({d.pick(1, 2, 3)}, {size})"]
    if rank > 1:
        names += [f"nn.AvgPool{rank}d({size}{more}, count_include_pad=False)",
                  f"nn.FractionalMaxPool{rank}d({size}, output_size={d.pick(1, 2)})"]
    return one(d.rng.choice(names))


@layer(*SPATIAL)
def unpooled(d):
    rank = SPACE[d.kind]
    if min(d.shape[2:]) < 2:
        return one("nn.Identity()")
    return [f"nn.MaxPool{rank}d(2, return_indices=True)", f"nn.MaxUnpool{rank}d(2)"], \
        "{1}(*{0}(x), output_size=x.shape)", None


@layer("signal", "image", "volume", weight=2)
def upsample(d):
    if max(d.shape[2:]) > 10 or d.kind == "volume" and max(d.shape[2:]) > 4:
        return one("nn.Identity()")
    smooth = {"signal": "linear", "image": d.pick("bilinear", "bicubic"), "volume": "trilinear"}[d.kind]
    return one(d.pick("nn.Upsample(scale_factor=2)", f"nn.Upsample(scale_factor={d.pick(2, 1.5)}, mode='{smooth}'"
                      f", align_corners={d.flag()})", f"nn.Upsample(size={d.pick(3, 5)}, mode='{smooth}')",
                      "nn.Upsample(scale_factor=1.5, mode='nearest-exact')"))


@layer("image")
def shuffled(d):
    c, (h, w) = d.shape[1], d.shape[2:]
    if c % 4 == 0 and d.chance(0.6):
        return one("nn.PixelShuffle(2)")
    if h % 2 == 0 and w % 2 == 0 and c <= 8:
        return one("nn.PixelUnshuffle(2)")
    return one(f"nn.ChannelShuffle({d.rng.choice([g for g in (1, 2, 3) if c % g == 0])})")


@layer("image", "signal", "volume")
def padded(d):
    name = d.pick("Zero", "Reflection", "Replication", "Constant", "Circular")
    return one(f"nn.{name}Pad{SPACE[d.kind]}d(1{', 0.5' if name == 'Constant' else ''})")


@layer("image")
def folded(d):
    return [f"nn.Unfold({d.pick(2, 3)}, stride={d.pick(1, 2)})"], "{0}(x).transpose(1, 2)", "sequence"


@layer("sequence", weight=4)
def recurrent(d):
    name = d.pick("RNN", "LSTM", "LSTM", "GRU", "GRU")
    options = [str(d.shape[-1]), str(h := d.pick(3, 4, 5, 8)), "batch_first=True"]
    if d.chance(0.3):
        options.append("num_layers=2" + d.pick("", ", dropout=0.2"))
    if d.chance(0.3):
        options.append("bidirectional=True")
    if d.chance(0.2):
        options.append("bias=False")
    if name == "RNN" and d.chance(0.4):
        options.append("nonlinearity='relu'")
    if name == "LSTM" and d.chance(0.2) and h > 3:
        options.append("proj_size=3")
    if d.chance(0.2):
        last = {"LSTM": "{0}(x)[1][0][-1]"}.get(name, "{0}(x)[1][-1]")
        return [f"nn.{name}({', '.join(options)})"], last, "rows"
    if "bidirectional=True" not in options and d.chance(0.15) and "proj_size=3" not in options:
        return [f"nn.{name}({', '.join(options)})"], "carried(w, {0}, x)", None
    return [f"nn.{name}({', '.join(options)})"], "packed({0}, x)" if d.chance(0.1) else "{0}(x)[0]", None


@layer("rows", weight=2)
def cell(d):
    name, hidden = d.pick("RNNCell", "LSTMCell", "GRUCell"), d.pick(3, 4, 6)
    result = "{0}(x)[0]" if name == "LSTMCell" else "{0}(x)"
    if name != "LSTMCell" and d.chance(0.5):
        return [f"nn.{name}({d.shape[-1]}, {d.shape[-1]})"], "{0}(x, x.tanh())", None
    return [f"nn.{name}({d.shape[-1]}, {hidden}{d.pick('', ', bias=False')})"], result, None


@layer("sequence", weight=2)
def cell_in_a_loop(d):
    name = d.pick("RNNCell", "GRUCell")
    return [f"nn.{name}({d.shape[-1]}, {d.pick(3, 5)})"], "unrolled({0}, x)", "rows"


@layer("sequence", weight=3)
def attention(d):
    e, heads = d.shape[-1], d.rng.choice([h for h in (1, 2, 4) if d.shape[-1] % h == 0])
    more = d.pick("", ", dropout=0.2", ", bias=False", ", add_bias_kv=True", ", add_zero_attn=True")
    how = d.pick("", ", need_weights=False", ", average_attn_weights=False",
                 ", need_weights=False, is_causal=True, "
                 "attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1"
                 "]).to(x.dtype)", ", attn_mask=torch.ones(x.shape[1], x.shape[1]).triu(1).bool()")
    return [f"nn.MultiheadAttention({e}, {heads}, batch_first=True{more})"], f"{{0}}(x, x, x{how})[0]", None


@layer("sequence", weight=2)
def transformer(d):
    e, heads = d.shape[-1], d.rng.choice([h for h in (1, 2) if d.shape[-1] % h == 0])
    more = d.pick("", ", dropout=0.0", ", norm_first=True", ", activation='gelu'", ", activation=F.silu, bias=False")
    text = f"nn.TransformerEncoderLayer({e}, {heads}, {d.pick(8, 12)}, batch_first=True{more})"
    if d.chance(0.25):
        text = f"nn.TransformerEncoder({text}, 2{d.pick('', ', enable_nested_tensor=False')})"
    if d.chance(0.25):
        text = text.replace("EncoderLayer(", "DecoderLayer(")
        if "TransformerEncoder(" not in text:
            return [text], "{0}(x, x.detach() * 0.5)", None
        return one("nn.Identity()")
    return [text], "{0}(x)", None


@layer("sequence")
def similarity(d):
    return [f"nn.Linear({d.shape[-1]}, {d.shape[-1]})"], "F.scaled_dot_product_attention({0}(x), x, x)", None


@layer("tokens", weight=4)
def embedding(d):
    more = d.pick("", "", ", padding_idx=0", ", max_norm=1.0", ", scale_grad_by_freq=True", ", sparse=True")
    return one(f"nn.Embedding(11, {d.width()}{more})", "sequence")


@layer("tokens")
def bag(d):
    more = d.pick("", ", mode='sum'", ", mode='max'", ", padding_idx=1", ", mode='sum', sparse=True")
    return one(f"nn.EmbeddingBag(11, {d.width()}{more})", "rows")


# ---- from one kind to another

@layer("sequence", "signal")
def turned(d):
    return [], d.pick("x.transpose(1, 2)", "x.mT", "x.movedim(1, 2)"), "signal" if d.kind == "sequence" else "sequence"


@layer("sequence")
def pooled(d):
    return [], d.pick("x.mean(1)", "x[:, -1]", "x.max(1).values", "x.flatten(1)", "x.sum(1) * 0.5",
                      "x.logsumexp(1)", "x[:, 0] + x[:, 1:].mean(1)"), "rows"


@layer(*SPATIAL)
def flattened(d):
    if d.chance(0.5):
        return [], d.pick("x.mean(tuple(range(2, x.dim())))", "x.amax(tuple(range(2, x.dim())))",
                          "x.flatten(1)"), "rows"
    return ["nn.Flatten()"], "{0}(x)", "rows"


@layer("rows")
def unflattened(d):
    if d.shape[-1] % 4 == 0 and d.chance(0.4):
        return [f"nn.Unflatten(1, ({d.shape[-1] // 4}, 2, 2))"], "{0}(x)", "image"
    return [], d.pick("x.unsqueeze(1).repeat(1, 3, 1)", "x[:, None].expand(-1, 3, -1)",
                      "torch.stack((x, x * 0.5), 1)"), "sequence"


def sequential(d):
    """Several in one module, while their calls are plain."""
    found, kind = [], d.kind
    for _ in range(d.pick(2, 2, 3)):
        texts, call, after = d.rng.choice([x for x in LAYERS[kind] if x in (activation, dropout, linear,
                                                                            norm_of_features)]
                                          if kind in FEATURES else [activation, dropout])(d)
        if texts and call == "{0}(x)" and after is None and "Linear" not in texts[0]:
            found.append(texts[0])
    if kind in FEATURES:
        found.insert(d.rng.randint(0, len(found)), f"nn.Linear({d.shape[-1]}, {d.shape[-1]})")
    return one(f"nn.Sequential({', '.join(found)})")


for _kind in ALL:
    LAYERS[_kind] += [sequential] * 3
