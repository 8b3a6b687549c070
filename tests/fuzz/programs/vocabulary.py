"""What each binding row takes: from its parameters to texts of arguments. A row without an entry here fails
tests/py/test_rows.py.

Operators of numbers, shapes and places; what networks are made of, and what makes or reads tensors, stands in
vocabulary_nn.py."""

from .draw import DTYPES, FLOATS

ROWS = {}  # name of a row -> function of a Draw; answers arguments by parameter (None: left out)


def rows(names):
    def register(function):
        for name in names.split():
            assert name not in ROWS, name
            ROWS[name] = function
        return function

    return register


# ---- elementwise


@rows("""neg negative abs absolute sign square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan tanh erf sigmoid expit logsigmoid
      relu relu6 silu mish hardswish hardsigmoid softsign floor ceil round trunc fix frac isnan isinf isfinite logical_not bitwise_not invert""")
def unary(d):
    return {"input": d.tensor(), "inplace": d.optional(d.flag, 0.3)}


@rows("""mul multiply true_divide truediv atan2 arctan2 maximum minimum fmax fmin copysign eq ne not_equal lt less le less_equal gt greater ge
      greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor and or xor floor_divide floordiv remainder mod fmod
      bitwise_left_shift bitwise_right_shift lshift rshift""")
def binary(d):
    x = d.tensor()
    return {"input": x, "other": d.operand(x)}


@rows("add sub subtract rsub")
def scaled(d):
    return binary(d) | {"alpha": d.optional(d.number, 0.25)}


@rows("div divide")
def divide(d):
    return binary(d) | {"rounding_mode": d.optional(lambda: d.pick("'floor'", "'trunc'", "None", "'floor'", "'round'"),
                                                    0.4)}


@rows("pow")
def power(d):
    x = d.tensor()
    exponent = d.pick("2", "3", "0.5", "-0.5", "-1", "-2", "1", "0", "2.0", "-1.5",
                      "4") if d.chance(0.6) else d.operand(x)
    return {"input": x, "exponent": exponent}


@rows("gelu")
def gelu(d):
    return {"input": d.tensor(), "approximate": d.optional(lambda: d.pick("'tanh'", "'none'"), 0.5)}


@rows("leaky_relu")
def leaky_relu(d):
    return unary(d) | {"negative_slope": d.optional(d.number)}


@rows("elu celu")
def elu(d):
    return unary(d) | {"alpha": d.optional(d.number)}


@rows("softplus")
def softplus(d):
    return {"input": d.tensor(), "beta": d.optional(lambda: d.pick("1", "2.0", "0.5")),
            "threshold": d.optional(lambda: d.pick("20", "1.0", "0"))}


@rows("where")
def where(d):
    x = d.tensor()
    condition = d.partner(x, "torch.bool") if d.chance(0.95) else d.partner(x)
    other = d.operand(x)
    if d.chance(0.15):
        x = d.number()
        return {"condition": condition, "input": x, "other": other, "self": d.partner(condition)}
    return {"condition": condition, "input": x, "other": other, "self": x}


@rows("masked_fill")
def masked_fill(d):
    x = d.tensor()
    return {"input": x, "mask": d.partner(x, "torch.bool" if d.chance(0.95) else None),
            "value": d.number() if d.chance(0.8) else d.tensor(rank=0)}


@rows("clamp clip")
def clamp(d):
    x = d.tensor()
    return {"input": x, "min": d.optional(lambda: d.operand(x), 0.7), "max": d.optional(lambda: d.operand(x), 0.7)}


@rows("clamp_min")
def clamp_min(d):
    x = d.tensor()
    return {"input": x, "min": d.operand(x)}


@rows("clamp_max")
def clamp_max(d):
    x = d.tensor()
    return {"input": x, "max": d.operand(x)}


@rows("lerp")
def lerp(d):
    x = d.tensor()
    return {"input": x, "end": d.partner(x), "weight": d.operand(x)}


@rows("addcmul addcdiv")
def addc(d):
    x = d.tensor()
    return {"input": x, "tensor1": d.partner(x), "tensor2": d.partner(x), "value": d.optional(d.number, 0.4)}


FORMATS = ("torch.contiguous_format", "torch.preserve_format", "torch.channels_last", "torch.channels_last_3d")


@rows("float double half bfloat16 long int bool cpu resolve_conj resolve_neg detach adjoint t ravel fliplr flipud "
      "numel _is_all_true")
def one(d):
    x = d.tensor()
    return {"input": x, "self": x, "memory_format": d.optional(lambda: d.pick(*FORMATS), 0.15)}


@rows("contiguous clone")
def copies(d):
    return one(d) | {"memory_format": d.optional(lambda: d.pick(*FORMATS), 0.5)}


@rows("hardshrink")
def hardshrink(d):
    return unary(d) | {"lambd": d.optional(d.number)}


@rows("hardtanh")
def hardtanh(d):
    low, high = sorted(d.rng.choice([-2, -1, 0, 0.5, 1, 2.5]) for _ in range(2))
    return unary(d) | {"min_val": d.optional(lambda: str(low)), "max_val": d.optional(lambda: str(high))}


@rows("threshold")
def threshold(d):
    return unary(d) | {"threshold": d.number(), "value": d.number()}


@rows("prelu")
def prelu(d):
    x = d.tensor()
    shape = d[x].shape
    count = shape[1] if len(shape) > 1 and d.chance(0.5) else 1
    return {"input": x, "weight": d.tensor(shape=() if d.chance(0.2) else (count,), dtype=d.like(x))}


@rows("dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout")
def dropout(d):
    off = d.pick("False", "False", "True")
    return unary(d) | {"p": d.optional(lambda: d.pick("0.5", "0.0", "0", "1.0", "0.1")) or "0.5", "training": off,
                       "train": off}


# ---- reductions and rows


@rows("prod")
def prod(d):
    """Of few elements: where a partial product overflows, the order decides between 0 and NaN, which torch's own vector
    length does."""
    return reduction(d, d.tensor(shape=[d.pick(1, 2, 3) for _ in range(d.rng.randint(0, 3))]))


@rows("sum mean amax amin all any argmax argmin logsumexp")
def reduction(d, x=None):
    x = x or d.tensor()
    return {
        "input": x,
        "dim": d.optional(lambda: d.dims(x), 0.75),
        "keepdim": d.optional(d.flag, 0.4),
        "dtype": d.optional(lambda: d.pick(*DTYPES[:9]), 0.15),
    }


@rows("max min")
def extremum(d):
    x = d.tensor()
    if d.chance(0.25):
        return {"input": x, "other": d.partner(x)}
    return {"input": x, "dim": d.optional(lambda: d.dim(x), 0.7), "keepdim": d.optional(d.flag, 0.4)}


@rows("var std var_mean std_mean")
def variance(d):
    x = d.tensor()
    by_flag = d.chance(0.3)
    return {
        "input": x,
        "dim": d.optional(lambda: d.dims(x), 0.7),
        "unbiased": d.flag() if by_flag else None,
        "keepdim": d.optional(d.flag, 0.4),
        "correction": None if by_flag else d.optional(lambda: d.pick("0", "1", "2", "0.5"), 0.5),
    }


@rows("norm vector_norm")
def norm(d):
    x = d.tensor()
    order = d.optional(lambda: d.pick("2", "1", "float('inf')", "-float('inf')", "0", "3", "0.5", "'fro'", "None",
                                      "2.0"), 0.7)
    return {"input": x, "x": x, "A": x, "p": order, "ord": order, "dim": d.optional(lambda: d.dims(x), 0.6),
            "keepdim": d.optional(d.flag, 0.4)} | {
        "dtype": d.optional(lambda: d.pick(*FLOATS), 0.1)
    }


@rows("normalize")
def normalize(d):
    x = d.tensor()
    return {"input": x, "p": d.optional(lambda: d.pick("2.0", "1", "2")), "dim": d.optional(lambda: d.dim(x)),
            "eps": d.optional(lambda: "1e-3", 0.3)}


@rows("softmax log_softmax softmin")
def softmax(d):
    x = d.tensor()
    return {"input": x, "dim": d.dim(x) if d.chance(0.95) else None,
            "dtype": d.optional(lambda: d.pick(*DTYPES[:4]), 0.2)}


@rows("cumsum")
def cumsum(d):
    x = d.tensor()
    return {"input": x, "dim": d.dim(x), "dtype": d.optional(lambda: d.pick(*DTYPES[:8]), 0.2)}


@rows("count_nonzero")
def count_nonzero(d):
    x = d.tensor()
    return {"input": x, "dim": d.optional(lambda: d.dims(x))}


# ---- sorting


@rows("sort argsort")
def sort(d):
    x = d.tensor()
    return {"input": x, "dim": d.optional(lambda: d.dim(x)), "descending": d.optional(d.flag),
            "stable": d.optional(d.flag, 0.3)}


@rows("topk")
def topk(d):
    x = d.tensor()
    dim = d.rng.randrange(d[x].dim()) if d[x].dim() else 0
    size = d[x].shape[dim] if d[x].dim() else 1
    k = d.rng.randint(0, size + (1 if d.chance(0.05) else 0))
    return {"input": x, "k": str(k), "dim": str(dim) if d.chance(0.8) else None, "largest": d.optional(d.flag, 0.4),
            "sorted": d.optional(d.flag, 0.3)}


@rows("histc")
def histc(d):
    return {"input": d.tensor(), "bins": d.optional(lambda: d.pick("1", "4", "10")),
            "min": d.pick("-1", "0", "-2.5", None), "max": d.pick("1", "2.5", None)}


@rows("isin")
def isin(d):
    x = d.tensor()
    return {"elements": x, "test_elements": d.tensor(dtype=d.like(x)), "assume_unique": d.optional(d.flag, 0.2),
            "invert": d.optional(d.flag, 0.4)}


# ---- views


@rows("view reshape view_as reshape_as")
def other_sizes(d):
    x = d.tensor()
    shape = list(d[x].shape)
    for _ in range(d.rng.randint(0, 3)):
        if len(shape) > 1 and d.chance(0.5):
            i = d.rng.randrange(len(shape) - 1)
            shape[i : i + 2] = [shape[i] * shape[i + 1]]
        elif shape:
            i = d.rng.randrange(len(shape))
            for p in (2, 3, 5):
                if shape[i] and shape[i] % p == 0 and len(shape) < 6:
                    shape[i : i + 1] = [p, shape[i] // p]
                    break
            else:
                shape.insert(i, 1)
        else:
            shape = [1]
    if d.chance(0.03):
        shape.append(2)
    sizes = [str(n) for n in shape]
    if sizes and d.chance(0.25):
        sizes[d.rng.randrange(len(sizes))] = "-1"
    like = d.tensor(shape=shape) if d.chance(0.3) else x
    return {"self": x, "input": x, "size": sizes, "shape": sizes, "other": like}


@rows("flatten")
def flatten(d):
    x = d.tensor()
    return {"input": x, "start_dim": d.optional(lambda: d.dim(x)), "end_dim": d.optional(lambda: d.dim(x))}


@rows("unflatten")
def unflatten(d):
    x = d.tensor()
    dim = d.rng.randrange(max(d[x].dim(), 1))
    n = d[x].shape[dim] if d[x].dim() else 1
    parts = [p for p in (1, 2, 3, 4, 5, 7) if n and n % p == 0] or [1]
    p = d.rng.choice(parts)
    return {"input": x, "dim": str(dim), "sizes": d.pick(f"({p}, {n // p})", f"({p}, -1)", f"[-1, {p}]", f"({n},)",
                                                         "(1, -1, 1)")}


@rows("squeeze")
def squeeze(d):
    x = d.tensor()
    return {"input": x, "dim": d.optional(lambda: d.dims(x))}


@rows("unsqueeze")
def unsqueeze(d):
    x = d.tensor(most=4)
    return {"input": x, "dim": d.dim(x, 1)}


@rows("expand expand_as broadcast_to")
def expand(d):
    x = d.tensor(most=4)
    shape = [n if n != 1 or d.chance(0.4) else d.pick(2, 3, 5) for n in d[x].shape]
    while len(shape) < 5 and d.chance(0.3):
        shape.insert(0, d.pick(1, 2, 3))
    sizes = [str(n) if d.chance(0.8) else "-1" for n in shape]
    return {"self": x, "input": x, "size": sizes, "other": d.tensor(shape=shape)}


@rows("broadcast_tensors")
def broadcast_tensors(d):
    x = d.tensor()
    return {"*0": x, "*1": d.partner(x), "*2": d.optional(lambda: d.partner(x), 0.3)}


@rows("atleast_1d atleast_2d atleast_3d")
def at_least(d):
    x = d.tensor()
    return {"*0": x, "*1": d.optional(lambda: d.partner(x), 0.2)}


@rows("meshgrid")
def meshgrid(d):
    many = [d.tensor(rank=d.pick(0, 1, 1, 1), dtype=d.floats) for _ in range(d.rng.randint(1, 3))]
    return {f"*{i}": x for i, x in enumerate(many)} | {"indexing": d.optional(lambda: d.pick("'ij'", "'xy'"), 0.9)}


@rows("transpose swapdims swapaxes")
def transpose(d):
    x = d.tensor()
    a, b = d.dim(x), d.dim(x)
    return {"input": x, "dim0": a, "dim1": b, "axis0": a, "axis1": b}


@rows("permute")
def permute(d):
    x = d.tensor()
    rank = d[x].dim()
    order = d.rng.sample(range(rank), rank)
    return {"self": x, "input": x, "dims": [str(k - rank if d.chance(0.2) else k) for k in order]}


@rows("movedim moveaxis")
def movedim(d):
    x = d.tensor()
    if d.chance(0.7):
        return {"input": x, "source": d.dim(x), "destination": d.dim(x)}
    rank = d[x].dim()
    many = d.rng.randint(0, rank)
    return {"input": x, "source": d.sizes(d.rng.sample(range(rank), many)),
            "destination": d.sizes(d.rng.sample(range(rank), many))}


@rows("diagonal")
def diagonal(d):
    x = d.tensor(least=1)
    return {"input": x, "offset": d.optional(lambda: d.pick("0", "1", "-1", "2", "-9")),
            "dim1": d.optional(lambda: d.dim(x), 0.3), "dim2": d.optional(lambda: d.dim(x), 0.3)}


@rows("narrow")
def narrow(d):
    x = d.tensor(least=1)
    dim = d.rng.randrange(max(d[x].dim(), 1))
    n = d[x].shape[dim] if d[x].dim() else 1
    start = d.rng.randint(0, n)
    length = d.rng.randint(0, n - start) + (1 if d.chance(0.04) else 0)
    return {"input": x, "dim": str(dim), "start": str(start - n if d.chance(0.2) else start), "length": str(length)}


@rows("select")
def select(d):
    x = d.tensor(least=1)
    dim = d.rng.randrange(max(d[x].dim(), 1))
    n = d[x].shape[dim] if d[x].dim() else 1
    return {"input": x, "dim": str(dim), "index": str(d.rng.randint(-n, max(n - 1, -n) + (1 if d.chance(0.05) else 0)))}


@rows("unfold")
def unfold(d):
    x = d.tensor(most=4)
    dim = d.rng.randrange(max(d[x].dim(), 1))
    n = d[x].shape[dim] if d[x].dim() else 1
    return {"self": x, "dimension": str(dim), "size": str(d.rng.randint(0, n)), "step": d.pick("1", "2", "3")}


@rows("chunk split split_with_sizes tensor_split")
def split(d):
    x = d.tensor(least=0 if d.chance(0.05) else 1)
    dim = d.rng.randrange(max(d[x].dim(), 1))
    n = d[x].shape[dim] if d[x].dim() else 1
    cut = d.rng.randint(0, n)
    listed = d.pick(f"[{cut}, {n - cut}]", f"({n},)", f"[{cut}, 0, {n - cut}]")
    number = str(d.rng.randint(0 if d.chance(0.05) else 1, max(n, 1)))
    either = listed if d.chance(0.5) else number
    return {"input": x, "self": x, "tensor": x, "dim": str(dim) if d.chance(0.8) else None} | {
        "chunks": number, "split_size": either, "split_size_or_sections": either, "split_sizes": listed,
        "indices_or_sections": number if d.chance(0.5) else d.pick(f"[{cut}]", f"({cut // 2}, {cut})", "[]"),
    }  # fmt: skip


@rows("unbind")
def unbind(d):
    x = d.tensor(least=1)
    return {"input": x, "dim": d.optional(lambda: d.dim(x))}


# ---- copies, joins


@rows("repeat tile")
def repeat(d):
    x = d.tensor(most=4)
    rank = max(d[x].dim(), 0) + d.pick(0, 0, 1)
    times = [str(d.pick(1, 1, 2, 3, 0 if d.chance(0.1) else 1)) for _ in range(rank)]
    return {"self": x, "input": x, "repeats": times, "dims": times[d.pick(0, 0, 1) :]}


@rows("repeat_interleave")
def repeat_interleave(d):
    x = d.tensor()
    return {"input": x, "repeats": d.pick("1", "2", "3", "0"), "dim": d.optional(lambda: d.dim(x), 0.7)}


@rows("flip")
def flip(d):
    x = d.tensor()
    rank = d[x].dim()
    return {"self": x, "input": x, "dims": [str(k) for k in d.rng.sample(range(-rank, 0), d.rng.randint(0, rank))]}


@rows("roll")
def roll(d):
    x = d.tensor()
    rank = d[x].dim()
    if d.chance(0.3) or not rank:
        return {"input": x, "shifts": d.pick("1", "-2", "0", "5")}
    many = d.rng.randint(1, rank)
    if many == 1:
        return {"input": x, "shifts": d.pick("1", "-2", "0", "5"), "dims": d.dim(x)}
    return {"input": x, "shifts": d.sizes(d.pick(1, -1, 0, 2) for _ in range(many)),
            "dims": d.sizes(d.rng.sample(range(rank), many))}


@rows("cat concat concatenate")
def cat(d):
    x = d.tensor(least=0 if d.chance(0.05) else 1)
    rank = d[x].dim()
    dim = d.rng.randrange(rank) if rank else 0
    many = [x]
    for _ in range(d.rng.choice([0, 1, 1, 2, 3])):
        shape = list(d[x].shape)
        if shape:
            shape[dim] = d.pick(shape[dim], 1, 2, 0 if d.chance(0.2) else 3)
        many.append(d.tensor(shape=shape, dtype=d.like(x)) if d.chance(0.95) else d.tensor(shape=(0,)))
    d.rng.shuffle(many)
    return {"tensors": f"[{', '.join(many)}]", "dim": str(d.pick(dim, dim - rank)) if d.chance(0.8) or dim else None}


@rows("stack hstack vstack row_stack dstack column_stack")
def stack(d):
    x = d.tensor(most=4)
    many = [x] + [d.tensor(shape=d[x].shape, dtype=d.like(x)) for _ in range(d.rng.choice([0, 1, 1, 2]))]
    d.rng.shuffle(many)
    return {"tensors": d.pick(f"[{', '.join(many)}]", f"({', '.join(many)},)"),
            "dim": d.optional(lambda: d.dim(x, 1), 0.7)}


@rows("pad")
def pad(d):
    x = d.tensor()
    many = d.rng.randint(0, max(d[x].dim(), 1))
    by = [d.pick(0, 0, 1, 2, -1) for _ in range(2 * many)]
    mode = d.optional(lambda: d.pick("'constant'", "'constant'", "'reflect'", "'replicate'", "'circular'"), 0.4)
    if mode == "'circular'":
        by = [abs(n) for n in by]  # torch reads behind memory where one is negative
    return {"input": x, "pad": d.sizes(by), "mode": mode, "value": d.optional(d.number, 0.3)}


@rows("tril triu")
def band(d):
    return {"input": d.tensor(least=0 if d.chance(0.05) else 2),
            "diagonal": d.optional(lambda: d.pick("0", "1", "-1", "3"))}


# ---- indexing


def index_for(d, size, shape, dtype=None):
    """An index tensor that is in range, mostly."""
    return d.tensor(shape=shape, dtype=dtype or d.pick("torch.int64", "torch.int64", "torch.int32"),
                    values=f"index {max(size, 1) + (1 if d.chance(0.03) else 0)}", reuse=0)


@rows("index_select index_copy")
def index_select(d):
    x = d.tensor(least=1)
    rank = d[x].dim()
    dim = d.rng.randrange(max(rank, 1))
    shape, many = list(d[x].shape), d.pick(0, 1, 2, 5)
    index = index_for(d, shape[dim] if rank else 1, (many,))
    if rank:
        shape[dim] = many
    return {"input": x, "self": x, "dim": str(d.pick(dim, dim - rank)), "index": index,
            "source": d.tensor(shape=shape, dtype=d.like(x))}


@rows("gather take_along_dim")
def gather(d):
    x = d.tensor(least=1)
    rank = d[x].dim()
    dim = d.rng.randrange(max(rank, 1))
    shape = [n if n < 2 or d.chance(0.6) else d.rng.randint(1, n) for n in d[x].shape]
    if rank:
        shape[dim] = d.pick(1, 2, 4)
    index = index_for(d, d[x].shape[dim] if rank else 1, shape, "torch.int64" if d.chance(0.9) else None)
    return {"input": x, "dim": str(d.pick(dim, dim - rank)), "index": index, "indices": index}


@rows("embedding")
def embedding(d):
    rows_, width = d.pick(1, 3, 10), d.pick(1, 4, 8)
    weight = d.floating(shape=(rows_, width))
    index = index_for(d, rows_, d.shape(0, 3))
    pad_ = d.optional(lambda: d.pick("0", "-1", str(rows_ - 1), str(rows_)), 0.3)
    return {"input": index, "weight": weight, "indices": index, "padding_idx": pad_,
            "scale_grad_by_freq": d.optional(d.flag, 0.1)}


@rows("cross_entropy_loss nll_loss_nd")
def class_loss(d):
    classes, batch = d.pick(1, 3, 5), d.pick((), (1,), (4,), (2, 3), (2, 2, 3))
    x = d.floating(shape=(batch[0], classes, *batch[1:]) if batch else (classes,))
    return {"input": x, "target": index_for(d, classes, batch, "torch.int64" if d.chance(0.9) else None),
            "weight": d.optional(lambda: d.tensor(shape=(classes,), dtype=d.like(x)), 0.2),
            "reduction": d.pick("0", "1", "2"), "ignore_index": d.optional(lambda: d.pick("-100", "0", str(classes))),
            "label_smoothing": d.optional(lambda: d.pick("0.0", "0.1"), 0.2)}


@rows("one_hot")
def one_hot(d):
    n = d.pick(1, 3, 5)
    return {"input": index_for(d, n, d.shape(0, 3), "torch.int64" if d.chance(0.9) else None),
            "num_classes": d.pick(str(n), str(n + 2), "-1") if d.chance(0.9) else None}


def key(d, x, tensors=True):
    """What stands in x[...]."""
    rank = d[x].dim()
    parts, dim = [], 0
    while dim < rank and len(parts) < 6 and (d.chance(0.75) or not parts):
        n = d[x].shape[dim]
        r = d.rng.random()
        if r < 0.25 and n:
            parts.append(str(d.rng.randint(-n, n - 1) + (1 if d.chance(0.05) else 0)))
        elif r < 0.6:
            start, stop, step = d.pick("", "0", "1", "-2", "9"), d.pick("", "-1", "2", "5"), d.pick("", "", ":2", ":3")
            parts.append(f"{start}:{stop}{step}")
        elif r < 0.7:
            parts.append("None")
            continue
        elif r < 0.77 and "..." not in parts:
            parts.append("...")
            dim += d.rng.randint(0, rank - dim)
            continue
        elif r < 0.92 and tensors and n:
            parts.append(index_for(d, n, d.pick((), (2,), (3,), (2, 2), (0,), (1,)),
                                   "torch.int64" if d.chance(0.9) else None))
        elif tensors and d.chance(0.5):
            span = d.rng.randint(1, min(2, rank - dim))
            parts.append(d.tensor(shape=d[x].shape[dim : dim + span], dtype="torch.bool"))
            dim += span
            continue
        elif n:
            parts.append(f"[{d.rng.randrange(n)}, {d.rng.randrange(n)}]" if tensors else ":")
        else:
            parts.append(":")
        dim += 1
    return ", ".join(parts) or "..."


@rows("getitem")
def getitem(d):
    x = d.tensor()
    return {"self": x, "key": key(d, x)}


# ---- products


def matrix(d, *shape):
    return d.floating(shape=shape)


def some_width(d):
    return d.pick(0, 1, 1, 2, 3, 4, 5, 8, 16, 17, 32, 64) if d.chance(0.97) else 0


@rows("linear")
def linear(d):
    x = d.floating(least=1, most=4)
    k, n = d[x].shape[-1], some_width(d)
    dtype = d.like(x)
    weight = d.tensor(shape=(n, k + (1 if d.chance(0.03) else 0)) if d.chance(0.93) else (k,), dtype=dtype)
    return {"input": x, "weight": weight, "bias": d.optional(lambda: d.tensor(shape=(n,), dtype=dtype), 0.6)}


@rows("matmul mm bmm mv dot vdot")
def matmul(d):
    x = d.floating(least=1, most=4)
    shape = list(d[x].shape)
    k, n = shape[-1], some_width(d)
    if d.chance(0.3) and len(shape) > 1:
        other = (k,)
    elif d.chance(0.5):
        other = (k, n)
    else:
        batch = [b if d.chance(0.7) else 1 for b in shape[:-2]][d.pick(0, 0, 1) :]
        other = (*batch, k, n)
    return {"input": x, "other": (y := d.tensor(shape=other, dtype=d.like(x))), "mat2": y, "vec": y, "tensor": y}


def _exact(d, name):
    """Operands that fit the row: ranks of mm, bmm, mv, dot and of addmm's like."""
    m, k, n, b = *(some_width(d) for _ in range(3)), d.pick(1, 2, 3, 8)
    x, y, z = {
        "mm": ((m, k), (k, n), None), "bmm": ((b, m, k), (b, k, n), None), "mv": ((m, k), (k,), None),
        "dot": ((k,), (k,), None), "vdot": ((k,), (k,), None),
        "addmm": ((m, k), (k, n), (m, n)), "addmv": ((m, k), (k,), (m,)), "baddbmm": ((b, m, k), (b, k, n), (b, m, n)),
    }[name]  # fmt: skip
    first = d.floating(shape=x)
    second = d.tensor(shape=y, dtype=d.like(first))
    given = {"input": first, "mat2": second, "vec": second, "tensor": second, "other": second}
    if z is not None:
        z = tuple(s if d.chance(0.8) else 1 for s in z)[d.pick(0, 0, 0, 1) :]
        given = {"mat1": first, "mat": first, "batch1": first, "mat2": second, "vec": second, "batch2": second}
        given |= {"input": d.tensor(shape=z, dtype=d.like(first)), "beta": d.optional(d.number, 0.3),
                  "alpha": d.optional(d.number, 0.3)}
    return given


for _name in ("mm", "bmm", "mv", "dot", "vdot"):
    ROWS[_name] = lambda d, name=_name, either=matmul: _exact(d, name) if d.chance(0.8) else either(d)
for _name in ("addmm", "addmv", "baddbmm"):
    ROWS[_name] = lambda d, name=_name: _exact(d, name)


@rows("outer ger")
def outer(d):
    x = d.tensor(rank=1)
    return {"input": x, "vec2": d.tensor(rank=1, dtype=d.like(x))}


@rows("einsum")
def einsum(d):
    equation, *shapes = d.pick(
        ("ij,jk->ik", "ij", "jk"), ("bij,bjk->bik", "bij", "bjk"), ("bhqd,bhkd->bhqk", "bhqd", "bhkd"),
        ("i,j->ij", "i", "j"), ("ij->ji", "ij"), ("ii->i", "ii"),
        ("ij,ij->i", "ij", "ij"), ("bij->bj", "bij"), ("ij,j", "ij", "j"), ("...ij,...jk->...ik", "bij", "bjk"),
        ("ij,kj->ik", "ij", "kj"), ("abc,cd->abd", "abc", "cd"),
        ("ij,jk,kl->il", "ij", "jk", "kl"), ("ij->", "ij"), ("bhid,bjd->bhij", "bhid", "bjd"),
    )  # fmt: skip
    size = {c: d.pick(1, 2, 3, 4, 5) for c in "abcdhijklq"}
    dtype = d.main or d.floats
    many = [d.tensor(shape=[size[c] for c in letters], dtype=dtype) for letters in shapes]
    return {"equation": f"'{equation}'"} | {f"*{i + 1}": x for i, x in enumerate(many)}


@rows("tensordot")
def tensordot(d):
    """Dimensions in any order; a size of 1 goes with any."""
    x = d.floating(least=1, most=4)
    shape, rank = d[x].shape, len(d[x].shape)
    mine = d.rng.sample(range(rank), d.rng.randint(0, rank))
    other = [1 if d.chance(0.1) else shape[i] for i in mine] + [some_width(d) for _ in range(d.pick(0, 1, 2))]
    theirs = list(range(len(mine)))
    order = d.rng.sample(range(len(other)), len(other))
    theirs = [order.index(i) for i in theirs]
    y = d.tensor(shape=[other[i] for i in order], dtype=d.like(x))
    return {"self": x, "other": y, "dims_self": str([i - rank if d.chance(0.3) else i for i in mine]),
            "dims_other": str(theirs)}


@rows("inner")
def inner(d):
    x = d.floating(least=1, most=3)
    shape = (*(some_width(d) for _ in range(d.pick(0, 1, 2))), d[x].shape[-1])
    return {"input": x, "other": d.tensor(shape=shape, dtype=d.like(x)) if d.chance(0.9) else d.partner(x)}


@rows("_grouped_mm")
def grouped_mm(d):
    m, k, n, g = d.pick(1, 4, 9), d.pick(4, 8, 16), d.pick(4, 8), d.pick(1, 2, 3)
    ends = [*sorted(d.rng.randint(0, m) for _ in range(g - 1)), m]  # torch leaves rows behind the last end as they come
    return {"input": d.floating(shape=(m, k)), "mat2": d.floating(shape=(g, k, n)),
            "offs": f"torch.tensor({ends}, dtype=torch.int32)"}
