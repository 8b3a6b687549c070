"""What the rows take whose numbers torch makes, beside a segment or as a step of it: random numbers, ranges and
windows, elements by index, what hangs on values."""

from .vocabulary import FORMATS, index_for, rows
from .vocabulary_nn import convolution, options, some_sizes

# Rows that torch parses: what their parameters are is not asked of the binding.
PARAMETERS = {
    "rand": "size *1 *2 *3 | dtype device",
    "randn": "size *1 *2 *3 | dtype device",
    "randint": "low high size | dtype device",
    "randperm": "n | dtype device",
    "range": "start end step | dtype device",
    "tril_indices": "row col offset | dtype device",
    "triu_indices": "row col offset | dtype device",
    "bartlett_window": "window_length periodic | dtype device",
    "blackman_window": "window_length periodic | dtype device",
    "hamming_window": "window_length periodic alpha beta | dtype device",
    "hann_window": "window_length periodic | dtype device",
    "kaiser_window": "window_length periodic beta | dtype device",
}


# ---- made from nothing


@rows("rand randn")
def random_numbers(d):
    return {"size": some_sizes(d)} | options(d)


@rows("randint")
def randint(d):
    return {"low": d.pick("0", "-3", "5"), "high": d.pick("6", "10", "2"), "size": d.sizes(some_sizes(d))} | options(d)


@rows("randperm")
def randperm(d):
    return {"n": d.pick("0", "1", "5", "17")} | options(d)


@rows("linspace logspace range")
def spaced(d):
    steps, base = d.pick("0", "1", "2", "5", "9"), d.optional(lambda: d.pick("2", "10.0"), 0.4)
    return {"start": d.pick("0", "-1.5", "2"), "end": d.pick("5", "3.5", "2"), "steps": steps, "base": base,
            "step": d.optional(lambda: d.pick("1", "2"))} | options(d)


@rows("tril_indices triu_indices")
def band_indices(d):
    return {"row": d.pick("0", "1", "3"), "col": d.pick("1", "4"),
            "offset": d.optional(lambda: d.pick("0", "1", "-1"))} | options(d)


@rows("bartlett_window blackman_window hamming_window hann_window kaiser_window")
def window(d):
    return {"window_length": d.pick("0", "1", "2", "8"), "periodic": d.optional(d.flag)} | options(d)


# ---- random numbers, of a tensor


@rows("rand_like randn_like")
def random_like(d):
    return {"input": d.floating(), "memory_format": d.optional(lambda: d.pick(*FORMATS), 0.3)} | options(d)


@rows("randint_like")
def randint_like(d):
    return {"input": d.tensor(), "high": d.pick("3", "10"),
            "low": d.optional(lambda: d.pick("0", "-2"), 0.4)} | options(d)


@rows("uniform normal_ exponential cauchy log_normal geometric")
def drawn(d):
    return {
        "self": d.floating(), "from": d.optional(lambda: d.pick("0", "-1.5")), "to": d.pick("1", "2.5"),
        "mean": d.optional(lambda: d.pick("0.0", "1.5")),
        "std": d.pick("1.0", "0.3"), "lambd": d.optional(lambda: d.pick("1.0", "2")),
        "median": d.optional(lambda: "0.5"), "sigma": d.pick("1.0", "2.0"),
        "p": d.pick("0.5", "0.1"),
    }  # fmt: skip


@rows("random")
def random_integers(d):
    low = d.optional(lambda: d.pick("0", "1"), 0.5)
    return {"self": d.tensor(), "from": low, "to": low and d.pick("5", "100")}


@rows("normal")
def normal(d):
    if d.chance(0.4):
        return {"mean": d.pick("0.0", "1.5"), "std": d.pick("1.0", "0.5"), "size": d.sizes(some_sizes(d))}
    mean = d.floating()
    return {"mean": mean, "std": d.pick("1.0", "0.5", f"{mean}.abs()")}


@rows("bernoulli bernoulli_")
def bernoulli(d):
    x = d.floating()
    return {"self": x, "input": x if d.chance(0.1) else f"torch.sigmoid({x})",
            "p": d.optional(lambda: d.pick("0.5", "0", "1", "0.25"), 0.5)}


@rows("multinomial")
def multinomial(d):
    x = d.tensor(shape=[d.pick(2, 5)] if d.chance(0.5) else [2, d.pick(3, 6)], dtype=d.floats)
    return {"input": f"torch.softmax({x}, -1)", "num_samples": d.pick("1", "2"), "replacement": d.optional(d.flag, 0.4)}


@rows("poisson _standard_gamma")
def rates(d):
    x = f"{d.floating()}.abs()"
    return {"input": x, "self": x}


@rows("binomial")
def binomial(d):
    x = d.floating()
    return {"count": f"torch.full_like({x}, 7)", "prob": f"torch.sigmoid({x})"}


@rows("feature_dropout")
def feature_dropout(d):
    return {"input": d.floating(least=2), "p": d.pick("0.5", "0.1"), "train": d.flag()}


# ---- elements by index


@rows("scatter")
def scatter(d):
    x = d.tensor(least=1)
    dim = d.rng.randrange(max(d[x].dim(), 1))
    shape = [n if n < 2 or d.chance(0.5) else d.rng.randint(1, n) for n in d[x].shape]
    index = index_for(d, d[x].shape[dim] if shape else 1, shape, "torch.int64" if d.chance(0.9) else None)
    tensor = d.chance(0.5)
    reduce = d.optional(lambda: d.pick("'add'", "'multiply'"), 0.2)
    return {"input": x, "dim": str(d.pick(dim, dim - len(shape))), "index": index,
            "src": d.tensor(shape=shape, dtype=d.like(x)) if tensor else None,
            "value": None if tensor else d.number(), "reduce": reduce}  # fmt: skip


@rows("index_fill index_add")
def index_fill(d):
    x = d.tensor(least=1)
    rank = d[x].dim()
    dim, many = d.rng.randrange(max(rank, 1)), d.pick(0, 1, 3)
    shape = list(d[x].shape)
    index = index_for(d, shape[dim] if rank else 1, (many,))
    if rank:
        shape[dim] = many
    return {"input": x, "dim": str(d.pick(dim, dim - rank)), "index": index, "value": d.number(),
            "source": d.tensor(shape=shape, dtype=d.like(x)),
            "alpha": d.optional(d.number, 0.3)}  # fmt: skip


@rows("masked_select masked_scatter")
def masked(d):
    x = d.tensor()
    source = d.tensor(shape=[max(d[x].numel(), 1)], dtype=d.like(x))
    return {"input": x, "mask": d.partner(x, "torch.bool"), "source": source}


@rows("as_strided")
def as_strided(d):
    x = d.tensor(least=1)
    sizes = [d.pick(1, 2, 3) for _ in range(d.rng.randint(0, 3))]
    return {"input": x, "size": d.sizes(sizes), "stride": d.sizes(d.pick(0, 1, 1, 2, 3) for _ in sizes),
            "storage_offset": d.optional(lambda: d.pick("0", "1", "2"), 0.4)}


# ---- what hangs on values


@rows("nonzero argwhere _is_any_true")
def of_values(d):
    return {"input": d.tensor(dtype="torch.bool") if d.chance(0.3) else d.tensor(), "as_tuple": d.optional(d.flag)}


@rows("_unique2 unique_dim unique_consecutive")
def unique(d):
    x = d.tensor(least=1)
    return {"input": x, "dim": d.dim(x), "sorted": d.optional(lambda: "True"), "return_inverse": d.optional(d.flag),
            "return_counts": d.optional(d.flag)}


@rows("bincount")
def bincount(d):
    x = d.tensor(shape=[d.pick(0, 1, 7)], dtype=d.pick("torch.int64", "torch.int32", "torch.uint8"), values="index 9",
                 reuse=0)
    weights = d.optional(lambda: d.tensor(shape=list(d[x].shape), dtype=d.floats), 0.3)
    return {"input": x, "weights": weights, "minlength": d.optional(lambda: d.pick("0", "12"), 0.4)}


@rows("equal allclose")
def equal(d):
    x = d.tensor()
    return {"input": x, "other": x if d.chance(0.3) else d.partner(x), "rtol": d.optional(lambda: "1e-3"),
            "atol": d.optional(lambda: "0.1"), "equal_nan": d.optional(d.flag)}


@rows("contains")
def contains(d):
    x = d.tensor()
    return {"self": x, "element": d.operand(x)}


# ---- convolutions that only torch has a kernel for


@rows("conv3d")
def conv3d(d):
    return convolution(d, 3, False)
