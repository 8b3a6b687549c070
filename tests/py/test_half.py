"""Models and tensors in bfloat16 and float16: stored as such, computed in float32 and rounded behind each operator, as
torch's kernels do it.

Operators of one element are compared for every value that there is. Where both sides compute in float32 and round
once, results are equal to the bit, but
for the few elements whose float32 lies so near the middle of two results that its own error decides; those are
neighbours."""

import copy
import math
import os
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from dycl import _core
from families import CASES, SEED
from isa import ISAS, run_with
from suite import one_thread  # noqa: F401
from tolerance import HALF_MODEL, HALF_ROUNDING, half_product

DTYPES = list(HALF_ROUNDING)
both = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))


def every(dtype):
    """All values, shuffled so that neighbours in memory are not neighbours in size."""
    order = torch.randperm(65536, generator=torch.Generator().manual_seed(1))
    return torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)[order]


def numbers(dtype, *shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def place(x):
    """The place of each number among all of its dtype in order; both zeros have the same."""
    bits = x.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def apart(want, got):
    """How many numbers of the dtype lie between, at most, and how many elements differ; a NaN is as far from itself as
    anything."""
    distance = (place(want) - place(got)).abs()
    distance[want.isnan() & got.isnan()] = 0
    return distance.max().item(), (distance > 0).sum().item()


def run(function, *arguments, runs=3, left=0):
    """The last result of a few calls, all of whose operators but `left` a call are recorded."""
    target = dycl.accelerate(function)
    with torch.no_grad():
        for _ in range(runs):
            before = dycl.stats(target)["torch"]
            result = target(*arguments)
    assert left is None or dycl.stats(target)["torch"] - before <= left, dycl.explain(target)
    assert dycl.stats(target)["replays"] == 0, dycl.explain(target)
    return result


def same_looks(want, got):
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()


def compare(function, *arguments, most=0, share=0.0, near=0.0, **more):
    """most: how many numbers may lie between; share: of how many elements. near: a distance that is nothing."""
    want, got = function(*arguments), run(function, *arguments, **more)
    for w, g in zip(*(x if isinstance(x, tuple) else (x,) for x in (want, got))):
        same_looks(w, g)
        if w.dtype in HALF_ROUNDING:
            distance, count = apart(w, torch.where((w.double() - g.double()).abs() <= near, w, g))
            assert distance <= most and count <= share * w.numel(), (distance, count, w.numel())
        else:
            assert torch.equal(w, g)


UNARY = """neg abs sign square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan tanh sigmoid relu
floor ceil round trunc frac isnan isinf
    isfinite logical_not""".split()
ACTIVATIONS = "relu6 silu mish hardswish hardsigmoid logsigmoid softsign elu leaky_relu softplus".split()


@both
@pytest.mark.parametrize("name", UNARY + ACTIVATIONS + ["gelu", "gelu_tanh"])
def test_every_value(name, dtype):
    function = getattr(torch, name, None) if name in UNARY else getattr(F, name,
            lambda x: F.gelu(x, approximate="tanh"))
    if name == "gelu" and dtype == torch.float16:
        pytest.skip("left to torch, whose kernel for it is another one")
    x = every(dtype)
    if name == "gelu":
        # torch's kernel makes zeros of the smallest, infinities of the largest, NaN of infinity
        x = x[((x.abs() > 1e-37) | (x == 0)) & (x < 1e38)]
    # where torch's formula cancels, as in float32
    near = {"gelu": 1e-6, "gelu_tanh": 1e-6, "silu": 3e-37, "sigmoid": 3e-39}.get(name, 0)
    compare(function, x, most=1, share=5e-4, near=near)


ROUNDED = "neg abs sign square sqrt reciprocal relu floor ceil round trunc frac".split()  # to the nearest, everywhere


@both
@pytest.mark.parametrize("first", ROUNDED)
def test_one_operator_behind_another(first, dtype):
    """Each rounds, also where one operator is the same as the two and would round once."""
    x, names = every(dtype), UNARY + ACTIVATIONS
    for name in names:
        function = getattr(torch, name, None) if name in UNARY else getattr(F, name)
        near = {"silu": 3e-37, "sigmoid": 3e-39}.get(name, 0)
        compare(lambda x: function(getattr(torch, first)(x)), x, most=1, share=5e-4, near=near)


@both
def test_two_operators_of_two_operands(dtype):
    x, y, z = (numbers(dtype, 40, 100, seed=s) for s in range(3))
    compare(lambda x, y, z: (x * y + z, z + x * y, (x - y) * z, x * y * z, x + y + z, x / y * z, (x + y).relu()),
            x, y, z)
    compare(lambda x, y, z: (F.silu(x) * y, F.gelu(x, approximate="tanh") * y, F.silu(x + y)), x, y, z, most=2,
            share=5e-4)  # times a number, neighbours may be two apart
    compare(lambda x: (x.square().sum(-1), x.abs().sum(-1), (x * x).sum(-1)), x, most=1, share=0.02)


@both
@pytest.mark.parametrize("length", (1, 5, 15, 31, 33, 100))
def test_ends_of_vectors(length, dtype):
    """torch's kernels have another loop for what is left of a vector."""
    x, y = numbers(dtype, 7, length), numbers(dtype, 7, length, seed=1)
    compare(lambda x, y: (x + y, x - y, x * y, x / y, x * 0.3, x / 0.3, x + 0.3, 0.3 - x, F.silu(x) * y,
                          torch.where(x > y, x, 0.3), x.clamp(-0.3, 0.7)), x, y)


@both
@pytest.mark.parametrize("name",
                         "add sub mul div remainder fmod pow atan2 maximum minimum fmax fmin copysign eq lt ge".split())
def test_two_operands(name, dtype):
    function = getattr(torch, name)
    x, y = every(dtype), every(dtype).flip(0)
    if name in ("remainder", "fmod"):
        x, y = (t.where(torch.isfinite(x / y) & ((x / y).abs() < 2**20), torch.ones((), dtype=dtype)) for t in (x, y))
    if name in ("maximum", "minimum"):
        x = torch.where(x == 0, 1, x)  # which of two zeros: torch's own answer depends on the place
    compare(function, x, y, most=1, share=1e-3, left=name in ("fmax", "fmin"))


@both
@pytest.mark.parametrize("number", (0.3, 2.7, -1.1, 3, 1e-3, 0.5, -0.5, 2, -1))
@pytest.mark.parametrize("name", "add sub mul div remainder fmod pow lt eq ge".split())
def test_numbers(name, number, dtype):
    """Some kernels take a number as it is, others as one of the dtype."""
    if name == "pow" and number == 3 and dtype == torch.float16:
        pytest.skip("left to torch, which rounds once there")
    x = every(dtype)
    if name in ("remainder", "fmod"):
        x = x[(x.abs() / abs(number) < 2**20) | x.isnan()]
    compare(lambda x: getattr(torch, name)(x, number), x, most=1, share=2e-3)


@both
def test_numbers_of_activations(dtype):
    x = every(dtype)
    compare(lambda x: (F.leaky_relu(x, 0.3), F.elu(x, 0.3), F.softplus(x, 0.3, 2.5), F.threshold(x, 0.3, 0.7),
                       F.hardtanh(x, -0.3, 0.7)), x, most=1, share=5e-4)
    compare(lambda x: (0.3 - x, 0.3 * x, 0.3 / x, x.masked_fill(x > 0.3, 0.3), torch.where(x < 0, x, 0.3)), x)


@both
def test_one_element_of_another_dtype_is_a_number(dtype):
    x = numbers(dtype, 40)
    compare(lambda x: (x + torch.tensor(0.3), x + torch.tensor([3001])), x)
    compare(lambda x: (x * torch.tensor(0.3), torch.tensor(0.3) * x, x / torch.tensor(0.3), x * torch.tensor([3001])),
            x, left=4)


@both
def test_conversions(dtype):
    x, other = numbers(dtype, 300) * 100, DTYPES[dtype == DTYPES[0]]
    compare(lambda x: (x.float(), x.double(), x.long(), x.int(), x.to(torch.int8), x.bool(), x.to(other), x.half(),
                       x.bfloat16()), x)
    compare(lambda x: (x.to(dtype), (x * 1e5).to(dtype), x.double().to(dtype), x.long().to(dtype), (x > 0).to(dtype)),
            torch.randn(300) * 100)
    compare(lambda x: x.float().to(dtype), every(dtype))
    compare(lambda x: x.to(dtype),
            torch.randint(-(2**31), 2**31, (100000,), dtype=torch.int64).int().view(torch.float32))


@both
def test_promotion(dtype):
    other = DTYPES[dtype == DTYPES[0]]
    x = numbers(dtype, 3, 4)
    for y in (torch.randn(3, 4), torch.randn(3, 4).double(), torch.arange(12).view(3, 4), x > 0, x.to(other)):
        compare(lambda x, y: (x + y, x * y, torch.cat((x, x)), torch.where(x > 0, x, y)), x, y)


def rms_norm(x, w):
    h = x.to(torch.float32)
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotary(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos.unsqueeze(1) + torch.cat((-x[..., half:], x[..., :half]), -1) * sin.unsqueeze(1)


def gelu_of_gpt2(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


@both
@pytest.mark.parametrize("rows", (1, 7, 300))
@pytest.mark.parametrize("width", (1, 8, 77, 768, 3000))
def test_blocks(width, rows, dtype):
    """What is one pass here rounds where operators that run one by one round."""
    x, y, w = numbers(dtype, rows, width), numbers(dtype, rows, width, seed=1), numbers(dtype, width, seed=2)
    compare(rms_norm, x, w, most=2, share=1e-4)
    compare(lambda x, y: ((x + y) * x - y / (x.abs() + 1)).tanh() * 0.3 + 1.7, x, y, most=1, share=1e-3)
    compare(lambda x, y, w: F.silu(x) * y + w, x, y, w, most=8, share=1e-4)  # a sum that cancels
    compare(lambda x: F.softmax(x, -1, dtype=torch.float32).to(dtype), x, most=1, share=1e-3)
    compare(lambda x: F.softmax(x, -1), x, most=1, share=2e-3)
    # sums that cancel
    compare(lambda x, w: F.layer_norm(x + x, (width,), w, w) + x, x, w, most=2, share=5e-3,
            near=8 * HALF_ROUNDING[dtype])
    if dtype == torch.bfloat16:
        compare(gelu_of_gpt2, x)


@both
def test_layouts(dtype):
    x, column, row = numbers(dtype, 30, 40), numbers(dtype, 30, 1, seed=1), numbers(dtype, 40, seed=2)
    square = numbers(dtype, 40, 30, seed=3)
    compare(lambda x, c, r: ((x + c) * r, (c + r) * 2, (x * c).sum(-1) + 1, x.mean(-1, keepdim=True) * x), x, column,
            row)
    compare(lambda x, s: ((x.t() + s).relu(), x.t() * 2, (x[:, ::3] + 1, x[::2, 5:9] * x[1::2, 5:9])[1], x[:, 3].exp()),
            x, square, most=1, share=1e-3)
    compare(lambda x: (x[:1].expand(30, 40) + x, x[..., None].expand(30, 40, 2) * 3,
                       x.expand(2, 30, 40).transpose(0, 2) + 1), x)
    image = numbers(dtype, 2, 5, 6, 7).to(memory_format=torch.channels_last)
    compare(lambda x: (x + 1, (x * 2).contiguous() + x, x.permute(0, 2, 3, 1) * 3), image)


# How an operand of two dimensions can lie in memory; found by random programs: one number that repeats was read beyond.
OPERANDS = {
    "dense": lambda n, r, c: n(r, c), "rows": lambda n, r, c: n(r, 1).expand(r, c),
    "columns": lambda n, r, c: n(c).expand(r, c), "one": lambda n, r, c: n(1).expand(r, c),
    "transposed": lambda n, r, c: n(c, r).t(), "steps": lambda n, r, c: n(r, 3 * c)[:, ::3],
    "slice": lambda n, r, c: n(r, c + 5)[:, 2 : c + 2], "every other row": lambda n, r, c: n(2 * r, c)[::2],
}  # fmt: skip


@both
@pytest.mark.parametrize("shape", ((2, 3), (4, 1), (1, 5), (5, 33), (300, 70)), ids=str)
@pytest.mark.parametrize("lies", OPERANDS)
def test_every_layout_of_an_operand(lies, shape, dtype):
    x, y, odd = (OPERANDS[name](lambda *s, k=k: numbers(dtype, *s, seed=k) + 2, *shape)
                 for k, name in enumerate((lies, "dense", "rows")))
    for dim in (0, 1):
        compare(lambda x: (x.amax(dim), x.count_nonzero(dim), x.argmin(dim), (x > 2).any(dim)), x)
        compare(lambda x: (x.sum(dim), x.mean(dim), (x * odd).sum(dim), (y - x).mean(dim)), x, most=1, share=1,
                near=1e-2)  # any of a few elements may be a neighbour
        compare(lambda x: (x.softmax(dim), x.cumsum(dim)), x, most=2, share=1)
    compare(lambda x: (x + y, x * odd, torch.where(odd > 2, x, y), x.float() + 1, torch.cat((x, y)), x.neg().relu()), x)


# Sizes of 1 with any stride: what torch composes in float32 lies otherwise than what is one kernel.
ODD = {
    "(1, 8, 1)": lambda t: t.as_strided((1, 8, 1), (1, 8, 1)),
    "(1, 8, 2)": lambda t: t.as_strided((1, 8, 2), (1, 1, 8)),
    "(3, 1, 1)": lambda t: t.as_strided((3, 1, 1), (1, 7, 9)), "(8, 2, 4)": lambda t: t.view(2, 8, 4).transpose(0, 1),
    "(2, 2, 2, 1)": lambda t: t.as_strided((2, 2, 2, 1), (4, 1, 2, 1)), "rows": lambda t: t[:8, None].expand(8, 4),
    "(2, 1, 8, 4)": lambda t: t.view(2, 4, 8, 1).transpose(1, 3), "(1, 6, 1, 4)": lambda t: t.as_strided(
        (1, 6, 1, 4), (3, 4, 40, 1)),
}  # fmt: skip
SHAPED = {
    "rms_norm": lambda x: (F.rms_norm(x, x.shape[-1:]), F.rms_norm(x, x.shape[-1:], x.flatten()[: x.shape[-1]] + 0)),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]), "softmax": lambda x: (x.softmax(-1), x.softmax(0)),
    "normalize": lambda x: F.normalize(x, dim=-1), "activations": lambda x: (F.silu(x), F.relu6(x), F.hardtanh(x)),
    "numbers": lambda x: (x * 2, 1 / x, x + 1, x ** 2, x.clamp(0, 1)), "sums": lambda x: (x.sum(0), x.mean(-1, True)),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5), "cumsum": lambda x: x.cumsum(-1),
    "both": lambda x: (x + x[..., :1], x * x.sum(-1, keepdim=True), torch.where(x > 0, x, x[:1])),
    "glu": lambda x: F.glu(torch.cat((x, x), -1), -1), "glu of it": lambda x: F.glu(x, x.shape.index(2)),
    "product": lambda x: x @ x.mT, "float": lambda x: x.float() * 2, "joined": lambda x: torch.stack((x, x), 1),
}


@both
@pytest.mark.parametrize("name", SHAPED)
@pytest.mark.parametrize("lies", ODD)
def test_odd_strides(lies, name, dtype):
    x = ODD[lies](numbers(dtype, 64))
    if name == "glu of it" and 2 not in x.shape:
        pytest.skip("nothing to halve")
    accelerated = dycl.accelerate(SHAPED[name])
    with torch.no_grad():
        for _ in range(3):
            want, got = SHAPED[name](x), accelerated(x)
            for w, g in zip(*(r if isinstance(r, tuple) else (r,) for r in (want, got))):
                same_looks(w, g)


@both
def test_rows_that_are_added_several_times(dtype):
    """torch's index_add sums in float32, its index_put does not."""
    x, s = numbers(dtype, 5, 33), numbers(dtype, 400, 33, seed=1)
    index = torch.arange(400) % 3
    for alpha in (1, 0.3):
        compare(lambda x, s: (x * 2).index_add(0, index, s, alpha=alpha) + 1, x, s, left=1)
    compare(lambda x, s: (x * 2).scatter_add(0, index[:, None].expand(400, 33), s) + 1, x, s, left=None)


@both
def test_reductions(dtype):
    x = numbers(dtype, 6, 50, 7)
    for dim in (-1, 0, 1, (0, 2), (1, 2), None):
        compare(lambda x: (x.sum(dim), x.mean(dim), x.amax(dim or ()), x.amin(dim or ())), x, most=1, share=0.05)
        if dim is not None:
            compare(lambda x: (x.var(dim), x.std(dim), x.norm(dim=dim)), x, most=1, share=0.05)
    compare(lambda x: (x.argmax(-1), x.argmax(0), (x > 0).any(1), (x > 0).all(-1), x.cumsum(1)), x, most=1, share=1e-3)
    compare(lambda x: (x.sum(-1, dtype=torch.float32), x.float().sum(-1).to(dtype)), x.round())


@both
def test_elements_in_other_places(dtype):
    x, table = numbers(dtype, 4, 30), numbers(dtype, 50, 30, seed=1)
    index = torch.tensor([[1, 2, 49]])
    compare(lambda x, t: (F.embedding(index, t) + 1, torch.cat((x, t)), torch.stack((x, x)), x.roll(1, 0),
                          F.pad(x, (1, 2), value=0.3)), x, table, runs=5)
    compare(lambda x: (x.tril(), x.triu(1), x.index_select(0, torch.tensor([1, 0])), x.topk(3)[0], x.sort()[0],
                       torch.full((3, 2), 0.3, dtype=dtype) * 2), x)
    compare(lambda x: (torch.zeros_like(x) + 1.1, x.new_ones(3) * 0.7, x.new_full((2,), 0.3),
                       torch.ones(3, dtype=dtype) / 3), x)

    def cache(x):
        kept = torch.zeros(4, 8, dtype=dtype)
        kept[:, 2:4] = x[:, :2]
        kept.index_copy_(1, torch.tensor([5]), x[:, 3:4])
        kept[torch.tensor([1]), torch.tensor([7])] = x[0, 0]
        return kept, kept.mul_(0.3).add_(1)

    compare(cache, x, runs=6, left=3)


@both
def test_values_that_python_sees(dtype):
    def function(x):
        first, total = x[0, 0].item(), float(x.sum())
        return x * first + total, x.tolist(), bool((x > 0).any()), int(x[0, 1] * 100)

    x = numbers(dtype, 4, 30)
    want, got = function(x), run(function, x)
    assert torch.equal(want[0], got[0]) and want[1:] == got[1:]
    assert repr(run(lambda x: x + 1, x)) == repr(x + 1)
    assert dycl.accelerate(lambda x: (x + 1).type())(x) == x.type()
    if dtype == torch.float16:
        assert (run(lambda x: (x + 1).numpy(), x, left=1) == (x + 1).numpy()).all()
    else:
        with pytest.raises(TypeError, match="BFloat16"):
            run(lambda x: (x + 1).numpy(), x, left=9)


# ---- Products


def product_is_close(want, got, size, inner, dtype):
    """want, size: in float64; size: the same sum of absolute values."""
    error = (got.double() - want).abs()
    assert (error <= half_product(dtype, want, size, inner)).all(), (error / half_product(dtype, want, size,
            inner)).max()


@both
@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("rows", (1, 2, 3, 4, 5, 17, 130))
@pytest.mark.parametrize("inner, outer", ((64, 64), (65, 33), (700, 1030), (1, 5), (33, 1), (768, 3000)))
def test_products(inner, outer, rows, bias, dtype):
    x, w, b = numbers(dtype, rows, inner), numbers(dtype, outer, inner, seed=1), numbers(dtype, outer,
            seed=2) if bias else None
    exact, size = x.double() @ w.double().t(), x.double().abs() @ w.double().abs().t()
    if bias:
        exact, size = exact + b.double(), size + b.double().abs()
    linear = nn.Linear(inner, outer, bias=bias).to(dtype).eval()
    linear.weight.data.copy_(w)
    if bias:
        linear.bias.data.copy_(b)
    product_is_close(exact, run(lambda x: linear(x), x, runs=6), size, inner, dtype)  # a constant
    product_is_close(exact, run(lambda x, w: F.linear(x, w, b), x, w), size, inner, dtype)
    lies = w.t().contiguous()  # by rows, as in GPT-2
    product_is_close(exact, run(lambda x, w: torch.addmm(b, x, w) if bias else x @ w, x, lies), size, inner, dtype)
    parameter = nn.Parameter(lies, requires_grad=False)
    product_is_close(exact, run(lambda x: torch.addmm(b, x, parameter) if bias else x @ parameter, x, runs=6), size,
                     inner, dtype)
    apart_ = numbers(dtype, rows, 2 * inner, seed=3)[:, ::2]
    exact = apart_.double() @ w.double().t() + (b.double() if bias else 0)
    product_is_close(exact, run(lambda x, w: F.linear(x, w, b), apart_, w),
                     apart_.double().abs() @ w.double().abs().t() + 10, inner, dtype)


@both
@pytest.mark.parametrize("threads", (1, 2, 3))
def test_products_by_several_threads(threads, dtype):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows in (1, 4):
            x, w, b = numbers(dtype, rows, 1111), numbers(dtype, 900 + threads, 1111, seed=1), numbers(dtype,
                    900 + threads, seed=2)
            exact, size = x.double() @ w.double().t() + b.double(), x.double().abs() @ w.double().abs().t() + 3
            product_is_close(exact, run(lambda x, w: F.linear(x, w, b), x, w), size, 1111, dtype)
            lies = w.t().contiguous()
            product_is_close(exact, run(lambda x, w: torch.addmm(b, x, w), x, lies), size, 1111, dtype)
            constant = nn.Parameter(lies, requires_grad=False)
            product_is_close(exact, run(lambda x: torch.addmm(b, x, constant), x, runs=6), size, 1111, dtype)
    finally:
        torch.set_num_threads(before)


@both
def test_batches_of_products(dtype):
    a, b = numbers(dtype, 3, 4, 20, 30), numbers(dtype, 3, 4, 30, 7, seed=1)
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    product_is_close(exact, run(torch.matmul, a, b), size, 30, dtype)
    turned = b.transpose(-1, -2).contiguous().transpose(-1, -2)
    product_is_close(exact, run(torch.matmul, a, turned), size, 30, dtype)
    product_is_close(a.double() @ b[0, 0].double(), run(torch.matmul, a, b[0, 0]),
                     a.double().abs() @ b[0, 0].double().abs(), 30, dtype)


@both
@pytest.mark.parametrize("inner", (1, 2, 3, 5, 8, 33))
@pytest.mark.parametrize("rows", (1, 3, 6, 40))
def test_infinities_in_products(rows, inner, dtype):
    """An infinity makes a NaN of its own row at most: oneDNN multiplies pairs, of which the last may be half filled."""
    for lies in (lambda *s: numbers(dtype, *s), lambda n, r, c: numbers(dtype, r, n, c).transpose(0, 1),
                 lambda n, r, c: numbers(dtype, n, r, c + 1)[..., :c]):
        for out in (2, 16, 48):
            x, w = lies(2, rows, inner), numbers(dtype, 2, out, inner, seed=1)
            x[0, 0, inner - 1] = x[1, rows - 1, 0] = math.inf
            for function in (lambda x, w: F.linear(x, w[0]), lambda x, w: x @ w.mT, lambda x, w: x[0] @ w[1].t()):
                want, got = function(x, w), run(function, x, w)
                assert torch.equal(want.isnan(), got.isnan()) and torch.equal(want.isinf(), got.isinf())


@both
@pytest.mark.parametrize("queries, keys", ((1, 1), (1, 40), (16, 16), (9, 40)))
@pytest.mark.parametrize("mask", (None, "causal", "bool", "added"))
def test_attention(mask, queries, keys, dtype):
    if mask == "causal" and queries != keys:
        pytest.skip("torch's kernels do not agree there")
    q, k, v = numbers(dtype, 2, 4, queries, 32), numbers(dtype, 2, 4, keys, 32, seed=1), numbers(dtype, 2, 4, keys, 32,
            seed=2)
    allowed = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(3)) < 0.7
    allowed[..., 0] = True
    given = {"bool": allowed,
             "added": torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(dtype).min).to(dtype)}.get(mask)

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, given, is_causal=mask == "causal")

    for shape in (lambda x: x, lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)):
        arguments = [shape(x) for x in (q, k, v)]
        want, got = function(*arguments), run(function, *arguments)
        same_looks(want, got)
        exact = F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), given.double() if mask == "added"
                                               else given, is_causal=mask == "causal")
        most = v.double().abs().amax()  # weights sum to 1; torch rounds them, too
        assert (got.double() - exact).abs().max() <= HALF_ROUNDING[dtype] * most
        assert (got.double() - want.double()).abs().max() <= 2 * HALF_ROUNDING[dtype] * most


@pytest.mark.parametrize("rows", (1, 3))
@pytest.mark.parametrize("cast", (False, True))
def test_largest_of_a_product(cast, rows):
    """Small whole numbers, so that sums are exact and many elements are equal once they are rounded: the first of them
    is the answer."""
    generator = torch.Generator().manual_seed(5)
    weight = nn.Parameter(torch.randint(-3, 4, (6000, 260), generator=generator).bfloat16() / 8, requires_grad=False)

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            logits = F.linear(x, self.weight)
            return (logits.float() if cast else logits).argmax(-1)

    head, ties = Head(), 0
    target = dycl.accelerate(copy.deepcopy(head))
    with torch.no_grad():
        for i in range(60):
            x = torch.randint(-9, 10, (rows, 260), generator=generator).bfloat16()
            exact = (x.double() @ weight.double().t()).bfloat16()
            ties += ((exact == exact.amax(-1, keepdim=True)).sum(-1) > 1).sum().item()
            assert torch.equal(target(x), exact.argmax(-1)), i
    assert ties > 1, ties
    assert "largest of product" in dycl.explain(target) or not dycl.info()["isa"].startswith(
        "avx"), dycl.explain(target)


# ---- Models


def distance(want, got):
    return ((want.double() - got.double()).norm() / want.double().norm()).item()


def leaves(result):
    return [x for x in (result.values() if hasattr(result, "values") else (result,)) if isinstance(x, torch.Tensor)]


@both
@pytest.mark.parametrize("name",
                         ("BERT", "BERT, padded", "GPT-2", "GPT-2, padded", "Llama", "Llama, padded", "Mistral", "T5",
                          "ViT", "Swin", "ResNet", "ConvNeXt", "CLIP"))
def test_models(name, dtype):
    """The error against the same model in float64: as eager's own."""
    case = CASES[name]
    torch.manual_seed(SEED)
    exact = case.build().eval().to(dtype).double()
    given = case.inputs()
    eager = copy.deepcopy(exact).to(dtype)
    with torch.no_grad():
        to = lambda d: {k: v.to(d) if v.is_floating_point() else v for k, v in given.items()}  # noqa: E731
        want, plain = leaves(exact(**to(torch.float64))), leaves(eager(**to(dtype)))
        model = dycl.accelerate(copy.deepcopy(eager))
        for _ in range(4):
            got = leaves(model(**to(dtype)))
    for w, p, g in zip(want, plain, got):
        same_looks(p, g)
        if w.is_floating_point() and w.numel() > 1:
            assert distance(w, g) <= 1.5 * distance(w, p) + HALF_MODEL[dtype], (distance(w, p), distance(w, g))


@both
@pytest.mark.parametrize("name",
                         ("GPT-2, generate", "Llama, generate", "Llama, generate, static cache", "Mistral, generate"))
def test_generation_is_recorded_whole(name, dtype):
    case = CASES[name]
    torch.manual_seed(SEED)
    model = case.build().eval().to(dtype)
    given = case.inputs()
    accelerated = dycl.accelerate(copy.deepcopy(model))
    with torch.no_grad():
        want = model.generate(**given, **case.generate)
        for _ in range(4):
            got = accelerated.generate(**given, **case.generate)
    assert got.shape == want.shape and got.dtype == want.dtype
    assert torch.equal(got[:, : given["input_ids"].shape[1]], want[:, : given["input_ids"].shape[1]])
    stats = dycl.stats(accelerated)
    assert stats["recorded"] > 20 * max(stats["torch"], 1), dycl.explain(accelerated)


INTO = {
    "mean": lambda x, dtype: x.mean(-1, dtype=dtype),
    "mean of all": lambda x, dtype: torch.mean(x, dtype=dtype),
    "mean of columns": lambda x, dtype: x.mean(0, keepdim=True, dtype=dtype),
    "sum": lambda x, dtype: x.sum(-1, dtype=dtype),
    "prod": lambda x, dtype: x.prod(-1, dtype=dtype),
    "cumsum": lambda x, dtype: x.cumsum(-1, dtype=dtype),
    "softmax": lambda x, dtype: F.softmax(x, -1, dtype=dtype),
    "log_softmax": lambda x, dtype: x.log_softmax(-1, dtype=dtype),
    "nansum": lambda x, dtype: x.nansum(-1, dtype=dtype),
    "vector_norm": lambda x, dtype: torch.linalg.vector_norm(x, 2, -1, dtype=dtype),
}


@both
@pytest.mark.parametrize("own", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("name", INTO)
def test_reductions_into_16_bits(name, own, dtype):
    """Whether elements are rounded, or what they make: terms that cancel, and such as the dtype does not have."""
    rows = [[1e5, -1e5, 3, 1], [1000.5, -1000, 0.25, -0.25], [2049, 2051, 1, -4099], [7e4, -6e4, 1, -9e3], [3, 1, 2, 9]]
    x = torch.tensor(rows, dtype=torch.float64).to(own)
    if own == dtype and name in ("prod", "cumsum"):
        return  # what is rounded between the steps is not asked here
    try:
        want = INTO[name](x, dtype)
    except RuntimeError:
        return
    run = dycl.accelerate(lambda x: INTO[name](x, dtype))
    with torch.no_grad():
        for _ in range(3):
            got = run(x)
            assert got.dtype == want.dtype and got.stride() == want.stride()
            assert torch.allclose(got, want, rtol=torch.finfo(dtype).eps, atol=0, equal_nan=True), (got, want)


@pytest.mark.parametrize("isa", ISAS)
def test_other_instruction_sets(isa):
    if isa == _core.info()["isa"]:
        pytest.skip("the kernels that the other tests use")
    if os.environ.get("PYTEST_HALF_INSIDE"):
        pytest.skip("this is it")
    tests = ("blocks", "layouts", "reductions", "attention", "conversions", "two_operands", "models", "batches",
             "several")
    result = run_with(isa, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", " or ".join(tests),
                      timeout=900, PYTEST_HALF_INSIDE="1")
    assert result.returncode == 0, result.stdout[-3000:]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
