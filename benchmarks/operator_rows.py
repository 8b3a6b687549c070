"""The operators of benchmarks.operators: each a function of one tensor of any shape, between 0 and 1, and of `o`, which
holds what else it needs."""

import functools

import torch
import torch.nn.functional as F

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac
isfinite isnan lgamma log log10 log1p log2 logit neg reciprocal round rsqrt sgn sigmoid sign sin sinc sinh sqrt square
tan tanh trunc""".split()
ACTIVATIONS = """celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish normalize relu
relu6 selu silu softplus softshrink softsign tanhshrink""".split()
BINARY = """add atan2 copysign div eq fmax fmin fmod ge hypot logaddexp lt maximum minimum mul pow remainder sub
xlogy""".split()
ALONG = "amax amin argmax argmin cumprod cumsum logcumsumexp logsumexp mean norm prod std sum var".split()


class Operands:
    def __init__(self, shape):
        self.shape, last, first = shape, shape[-1], shape[0]
        self.y = torch.rand(shape) + 0.5
        self.mask = torch.rand(shape) > 0.5
        self.along = torch.randint(0, last, shape)  # gather's
        self.columns = torch.randint(0, last, (last // 3,))
        self.some = torch.randint(0, first, (max(first // 2, 2),))
        self.classes = torch.randint(0, last, (self.y.numel() // last,))
        self.weight = torch.rand(last)
        self.channels = shape[1] if len(shape) == 4 else last
        self.kernel = torch.randn(16, 16, 3, 3)
        self.each_kernel = torch.randn(16, 1, 3, 3)
        self.square = torch.randn(64, 64)
        self.places = torch.rand(shape[0], 32, 32, 2) * 2 - 1 if len(shape) == 4 else None


def matrix(x):
    """Rows as they lie."""
    return x.reshape(-1, x.shape[-1])


def batch(x):
    """Small matrices."""
    return x.reshape(-1, 16, 16)


def flat(x):
    """Three dimensions: some, 16 and the rest."""
    return x.reshape(4, 16, -1)


def heads(x):
    return x.reshape(2, 4, -1, 32)[:, :, :256]


ANY = {
    # activations and other elementwise functions with numbers
    "gelu tanh": lambda x, o: F.gelu(x, approximate="tanh"),
    "threshold": lambda x, o: F.threshold(x, 0.1, 0.0),
    "prelu": lambda x, o: F.prelu(x - 0.5, o.weight[:1]),
    "relu_": lambda x, o: (x * 1.5).relu_(),
    "clamp": lambda x, o: x.clamp(0.2, 0.5),
    "pow 2": lambda x, o: x**2,
    "pow 3": lambda x, o: x**3,
    "pow 2.5": lambda x, o: x**2.5,
    "lerp": lambda x, o: torch.lerp(x, o.y, 0.3),
    "addcmul": lambda x, o: torch.addcmul(x, x, o.y),
    "addcdiv": lambda x, o: torch.addcdiv(x, x, o.y),
    "where": lambda x, o: torch.where(o.mask, x, x * 2),
    "masked_fill": lambda x, o: x.masked_fill(o.mask, 0.0),
    "nan_to_num": lambda x, o: x.nan_to_num(),
    "dropout": lambda x, o: F.dropout(x, 0.3),
    "reversed div": lambda x, o: o.y / x,
    "row add": lambda x, o: x + o.weight,
    "column mul": lambda x, o: x * o.y[..., :1],
    # rows and columns
    "softmax": lambda x, o: F.softmax(x, -1),
    "softmax 0": lambda x, o: F.softmax(x, 0),
    "softmax 1": lambda x, o: F.softmax(x, 1),
    "log_softmax": lambda x, o: F.log_softmax(x, -1),
    "log_softmax 1": lambda x, o: F.log_softmax(x, 1),
    "softmin": lambda x, o: F.softmin(x, -1),
    "max": lambda x, o: x.max(-1)[0],
    "max 0": lambda x, o: x.max(0)[0],
    "median": lambda x, o: x.median(-1)[0],
    "sort": lambda x, o: x.sort(-1)[0],
    "topk": lambda x, o: x.topk(5)[0],
    "sum of all": lambda x, o: x.sum(),
    "centred": lambda x, o: x - x.mean(-1, keepdim=True),
    "share": lambda x, o: x / x.sum(-1, keepdim=True),
    "diff": lambda x, o: x.diff(),
    "renorm": lambda x, o: x.renorm(2, 0, 1.0),
    # norms
    "layer_norm": lambda x, o: F.layer_norm(x, x.shape[-1:], o.weight, o.weight),
    "rms_norm": lambda x, o: F.rms_norm(x, x.shape[-1:], o.weight),
    "group_norm": lambda x, o: F.group_norm(flat(x), 4),
    "batch_norm": lambda x, o: F.batch_norm(x, None, None, training=True),
    "instance_norm": lambda x, o: F.instance_norm(flat(x)),
    # losses and distances
    "mse_loss": lambda x, o: F.mse_loss(x, o.y),
    "l1_loss": lambda x, o: F.l1_loss(x, o.y),
    "smooth_l1_loss": lambda x, o: F.smooth_l1_loss(x, o.y),
    "huber_loss": lambda x, o: F.huber_loss(x, o.y),
    "soft_margin_loss": lambda x, o: F.soft_margin_loss(x, o.y),
    "kl_div": lambda x, o: F.kl_div(x, o.y, reduction="batchmean"),
    "bce": lambda x, o: F.binary_cross_entropy(x, o.y - 0.5),
    "bce with logits": lambda x, o: F.binary_cross_entropy_with_logits(x, o.y - 0.5),
    "cross_entropy": lambda x, o: F.cross_entropy(matrix(x), o.classes),
    "nll_loss": lambda x, o: F.nll_loss(matrix(x), o.classes),
    "cosine_similarity": lambda x, o: F.cosine_similarity(x, o.y, -1),
    "cdist": lambda x, o: torch.cdist(x.reshape(-1, 32)[:256], o.y.reshape(-1, 32)[:64]),
    "pdist": lambda x, o: F.pdist(x.reshape(-1, 64)[:64]),
    # what moves
    "cat": lambda x, o: torch.cat([x, x * 2], -1),
    "stack": lambda x, o: torch.stack([x, x]),
    "unbind": lambda x, o: torch.stack(x.unbind(0)[::2]),
    "chunk": lambda x, o: x.chunk(4, -1)[1] * x.chunk(4, -1)[2],
    "flip": lambda x, o: x.flip(0),
    "flip of rows": lambda x, o: x.flip(-1),
    "roll": lambda x, o: x.roll(3, -1),
    "transpose": lambda x, o: x.transpose(0, -1).contiguous(),
    "pad": lambda x, o: F.pad(x, (1, 2)),
    "repeat": lambda x, o: x.repeat(2, *[1] * (x.dim() - 1)),
    "expand": lambda x, o: x.unsqueeze(1) * torch.ones(3, *[1] * (x.dim() - 1)),
    "triu": lambda x, o: x.triu(),
    "tril": lambda x, o: x.tril(),
    "gather": lambda x, o: x.gather(-1, o.along),
    "index": lambda x, o: x[o.some],
    "index_select": lambda x, o: x.index_select(-1, o.columns),
    "embedding": lambda x, o: F.embedding(o.some, matrix(x)),
    "scatter_add": lambda x, o: torch.zeros(o.shape).scatter_add(-1, o.along, x),
    "index_add": lambda x, o: torch.zeros(o.shape).index_add(0, o.some, x[:len(o.some)]),
    # products
    "mm": lambda x, o: x.reshape(-1, 64) @ o.square,
    "mm transposed": lambda x, o: F.linear(x.reshape(-1, 64), o.square),
    "mv": lambda x, o: x @ o.weight,
    "outer": lambda x, o: x.flatten()[:512].outer(o.y.flatten()[:512]),
    "einsum": lambda x, o: torch.einsum("ij,kj->ik", matrix(x)[:256], matrix(o.y)[:64]),
    "bmm": lambda x, o: batch(x) @ batch(o.y),
    "bmm transposed": lambda x, o: batch(x) @ batch(x).transpose(1, 2),
    "attention": lambda x, o: F.scaled_dot_product_attention(heads(x), heads(x), heads(x)),
    "causal attention": lambda x, o: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
    "conv1d": lambda x, o: F.conv1d(flat(x), o.kernel[..., 1], padding=1),
}

IMAGES = {
    "conv2d": lambda x, o: F.conv2d(x, o.kernel, padding=1),
    "depthwise conv2d": lambda x, o: F.conv2d(x, o.each_kernel, padding=1, groups=16),
    "conv_transpose2d": lambda x, o: F.conv_transpose2d(x, o.kernel, padding=1),
    "max_pool2d": lambda x, o: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x, o: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x, o: F.adaptive_avg_pool2d(x, 8),
    "nearest": lambda x, o: F.interpolate(x, scale_factor=2.0),
    "bilinear": lambda x, o: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "bicubic": lambda x, o: F.interpolate(x, scale_factor=2.0, mode="bicubic"),
    "unfold": lambda x, o: F.unfold(x, 3),
    "pixel_shuffle": lambda x, o: F.pixel_shuffle(x, 2),
    "reflect pad": lambda x, o: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "grid_sample": lambda x, o: F.grid_sample(x, o.places, align_corners=False),
    "channel mul": lambda x, o: x * o.y[:1, :, :1, :1],
}


def table():
    found = {name: lambda x, o, f=getattr(torch, name): f(x) for name in UNARY}
    found |= {name: lambda x, o, f=getattr(F, name): f(x) for name in ACTIVATIONS}
    found |= {name: lambda x, o, f=getattr(torch, name): f(x, o.y) for name in BINARY}
    for name in ALONG:
        f = getattr(torch, name)
        found[name] = lambda x, o, f=f: f(x, dim=-1)
        found[f"{name} 0"] = lambda x, o, f=f: f(x, dim=0)
    return found | ANY


def names():
    return [*table(), *IMAGES]


def rows(shape):
    """name: (function, its operand)"""
    o, x = Operands(shape), torch.rand(shape) * 0.9 + 0.01
    found = table() | (IMAGES if len(shape) == 4 else {})
    # activations bend at 0
    return {name: (functools.partial(f, o=o), x * 8 - 4 if name in ACTIVATIONS else x) for name, f in found.items()}
