"""Reductions, products, normalisation, convolution, pooling, attention, cells: recorded (not left to torch), and equal
to eager in values, strides, aliasing and identity, on cases that torch's own database does not have."""

import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import dycl
from dycl import _environment
from binding_check import left_to_torch
from tolerance import bounds

INF, NAN = float("inf"), float("nan")


def same(expected, actual, name="matmul"):
    assert type(actual) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(expected) == len(actual)
        for e, a in zip(expected, actual):
            same(e, a, name)
        return
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert actual.stride() == expected.stride(), f"{actual.stride()} instead of {expected.stride()}"
    rtol, atol = bounds(name, expected.dtype)
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


def check(function, *inputs, left=0, name="matmul"):
    """Three runs; `left`: how many operators a call leaves to torch (None: any number)."""
    with torch.no_grad():
        expected = function(*inputs)
        accelerated = dycl.accelerate(function)
        for _ in range(3):
            same(expected, accelerated(*inputs), name)
        if left is not None:
            stats = dycl.stats(accelerated)
            assert left_to_torch(stats) == 3 * left and (stats["replays"] == 0 or _environment.replays()), \
                dycl.explain(accelerated)


def rejected(function, *inputs):
    """Both raise the same error."""
    with torch.no_grad():
        with pytest.raises(Exception) as expected:
            function(*inputs)
        with pytest.raises(type(expected.value)) as actual:
            dycl.accelerate(function)(*inputs)
    assert str(actual.value) == str(expected.value)


def layouts(*sizes, windows=True):
    """Tensors of these sizes: contiguous, permuted, sliced, expanded, a view of a view, windows that overlap."""
    torch.manual_seed(len(sizes))
    yield torch.randn(sizes)
    yield torch.randn(tuple(reversed(sizes))).permute(tuple(reversed(range(len(sizes)))))
    yield torch.randn(*sizes[:-1], 2 * sizes[-1])[..., ::2]
    yield torch.randn(1, *sizes[1:]).expand(sizes)
    if len(sizes) >= 2:
        yield torch.randn(sizes[0] + 2, *sizes[1:])[1:-1].transpose(0, 1).contiguous().transpose(0, 1)
    if len(sizes) >= 2 and windows:
        yield torch.randn(*sizes[:-2], sizes[-2] + sizes[-1] - 1).unfold(-1, sizes[-1], 1)
    if len(sizes) == 4:
        yield torch.randn(sizes).contiguous(memory_format=torch.channels_last)


# ---- reductions

REDUCTIONS = {
    "sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin,
    "all": lambda x, d, k: torch.all(x > 0, d, k),
    "any": lambda x, d, k: torch.any(x > 1, d, k), "var": lambda x, d, k: torch.var(x, d, correction=0, keepdim=k),
    "std": lambda x, d, k: x.std(d, False, k),
    "logsumexp": torch.logsumexp, "norm": lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k),
    "sumabs": lambda x, d, k: x.norm(1, d, k),
    "infnorm": lambda x, d, k: x.norm(INF, d, k), "count": lambda x, d, k: (x > 0).sum(d, k),
    "int": lambda x, d, k: x.long().sum(d, k),
}  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_over_every_set_of_dimensions(reduction):
    f = REDUCTIONS[reduction]
    for x in layouts(3, 4, 5, 2):
        for count in range(1, 5):
            for dims in itertools.combinations(range(4), count):
                for keep in (False, True):
                    check(lambda t: f(t, dims, keep), x, name="sum")


@pytest.mark.parametrize("size", [1, 2, 7, 16, 17, 33, 1000, 4099, 100_003])
def test_long_rows(size):
    x = torch.linspace(-3, 5, size)
    for f in (torch.sum, torch.mean, torch.amax, torch.argmax, torch.argmin, lambda t: t.softmax(0),
              lambda t: t.log_softmax(-1)):
        check(f, x, name="sum")
        check(lambda t: f(t.expand(3, size) if f is not torch.argmax else t), x, name="sum")
    check(lambda t: t.cumsum(0) / t.numel(), x, name="sum")
    with torch.no_grad():  # torch adds up squares in float32: off by 2e-5 for the longest row
        same(x.double().norm().float(), dycl.accelerate(torch.norm)(x), "sum")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
                                   torch.uint8, torch.bool])
def test_reductions_of_dtypes(dtype):
    x = torch.tensor([[3, -1, 0, 2], [5, 5, -7, 1], [0, 0, 0, 1]]).to(dtype)
    for f in (
        torch.sum, lambda t: t.sum(1), lambda t: torch.sum(t, 0, dtype=torch.float64), lambda t: t.prod(),
        lambda t: t.prod(1, True), torch.max, torch.min,
        lambda t: t.amax((0, 1)), lambda t: t.amin(-1), lambda t: t.cumsum(0), lambda t: torch.count_nonzero(t, 1),
        lambda t: t.mean(dtype=torch.float32),
    ):  # fmt: skip
        check(f, x, name="sum")
    if dtype != torch.uint8:
        check(lambda t: (t.all(), t.any(1), torch.any(t, 0, True)), x)
    if dtype != torch.bool:
        check(lambda t: (t.argmax(), t.argmax(1), t.argmin(0, True), t.max(1), t.min(0, keepdim=True)), x)


def test_special_values():
    x = torch.tensor([[1.0, NAN, 3.0, NAN], [INF, -INF, 0.0, 1.0], [-INF, -INF, -INF, -INF], [INF, INF, 1.0, 2.0],
                      [3.0, 3.0, 1.0, 3.0]])
    for f in (
        lambda t: t.sum(1), lambda t: t.mean(0), lambda t: t.max(1), lambda t: t.min(1), lambda t: t.amax(),
        lambda t: t.argmax(1), lambda t: t.argmin(1),
        lambda t: t.argmax(), lambda t: t.logsumexp(1), lambda t: t.logsumexp((0, 1)), lambda t: t.softmax(1),
        lambda t: t.log_softmax(1), lambda t: t.cumsum(1),
        lambda t: t.norm(dim=1), lambda t: t.norm(INF, 1), lambda t: t.prod(1), lambda t: t.all(1), lambda t: t.var(1),
        lambda t: torch.max(t, -t),
        lambda t: F.normalize(t), lambda t: torch.count_nonzero(t),
    ):  # fmt: skip
        check(f, x, name="sum")
    big = torch.full((4, 8), 1e30)
    check(lambda t: (t.norm(), t.norm(dim=1), t.sum(), t.softmax(1), t.var(1)), big, name="sum")
    tiny = torch.full((4, 1), 1e-30)
    check(lambda t: (t.norm(dim=1), t.norm(2, 1, True), F.normalize(t)), tiny, name="sum")


def test_scalars_and_empty_tensors():
    scalar, empty = torch.tensor(2.5), torch.empty(0, 3)
    check(lambda t: (t.sum(), t.sum(0), t.mean(-1), t.prod(), t.amax(), t.all(), t.any(0), t.max(), t.norm()), scalar,
          name="sum")
    check(lambda t: (t.sum(), t.sum(0), t.sum(1), t.prod(0), t.all(), t.any(0), t.all(1), t.mean(1),
                     torch.count_nonzero(t)), empty, name="sum")
    check(lambda t: (t.mean(0), t.mean()), empty, name="sum")
    check(lambda t: t.softmax(0), empty, name="sum")
    check(lambda t: t.cumsum(0), empty, name="sum")
    for f in (lambda t: t.amax(), lambda t: t.max(), lambda t: t.argmax(0), lambda t: t.max(0),
              lambda t: t.norm(INF, 0)):
        rejected(f, empty)
    check(lambda t: t.std(0), torch.randn(1, 3), left=1, name="sum")  # torch warns


def test_argument_forms():
    x = torch.randn(3, 4)
    for f in (
        lambda t: t.sum(axis=0), lambda t: t.mean(axis=(0, 1), keepdims=True),
        lambda t: torch.amax(t, axis=-1, keepdims=True), lambda t: t.softmax(axis=1),
        lambda t: torch.cumsum(x=t, axis=0), lambda t: t.argmax(axis=1, keepdims=True), lambda t: t.max(axis=0),
        lambda t: torch.add(a=t, x2=t), lambda t: torch.mul(x1=t, other=2),
        lambda t: t.sum(dim=[0, -1]), lambda t: t.sum(()), lambda t: t.sum(None),
        lambda t: torch.sum(input=t, dim=1, keepdim=True), lambda t: t.amax(keepdim=True),
        lambda t: t.var(False), lambda t: t.var(unbiased=False), lambda t: torch.var(t, 1, True, True),
        lambda t: t.std(correction=2), lambda t: t.var((0, 1), correction=0.5),
        lambda t: torch.std_mean(t, 1), lambda t: torch.var_mean(t, dim=0, keepdim=True),
        lambda t: torch.max(t, dim=-1, keepdim=True), lambda t: torch.max(t, other=t.neg()),
        lambda t: t.softmax(0, torch.float64), lambda t: F.softmax(t, dim=1, dtype=torch.float64),
        lambda t: F.log_softmax(t, -1, _stacklevel=5), lambda t: F.softmin(t, 0),
        lambda t: torch.special.log_softmax(t, 1), lambda t: torch.norm(t, "fro"),
        lambda t: torch.norm(t, dim=(0, 1), keepdim=True), lambda t: torch.linalg.norm(t),
        lambda t: torch.linalg.norm(t, 2, 1), lambda t: torch.linalg.norm(t, dim=(0, 1)),
        lambda t: F.normalize(t, p=1.0, dim=0, eps=1e-3),
    ):  # fmt: skip
        check(f, x, name="sum")
    check(lambda t: torch.sum(t, 1, out=None), x, left=1, name="sum")
    for f in (
        lambda t: (t + 1).sum(1, out=None), lambda t: (t + 1).exp(out=None),
        lambda t: torch.reshape(t, (2, 6), out=None), lambda t: t.sum(0, axis=0), lambda t: t.sum(axes=0),
        lambda t: t.norm(axis=0), lambda t: F.softmax(t, axis=0), lambda t: t.sum(x=t), lambda t: t.add(x1=t),
        lambda t: t.sum(2), lambda t: t.sum((0, 0)), lambda t: t.sum(0, 1), lambda t: t.sum(keepdim=True),
        lambda t: t.long().mean(), lambda t: (t > 0).argmax(),
        lambda t: t.softmax(2), lambda t: t.long().softmax(0), lambda t: t.prod((0, 1)),
        lambda t: t.var(0, unbiased=True, correction=1), lambda t: t.max(1, 2),
        lambda t: t.logsumexp(), lambda t: t.norm("what"), lambda t: t.long().var(), lambda t: t.cumsum(),
    ):  # fmt: skip
        rejected(f, x)


def test_structseq_results():
    x = torch.randn(4, 5)

    def f(t):
        values, indices = torch.max(t, 1)
        least = t.min(0)
        return values + indices, least.values, least.indices, torch.max(t, 0)

    check(f, x)


def test_cumsum_in_place():
    def f(t):
        y = t * 2
        z = y.cumsum_(1)
        return y, z is y and torch.tensor(1)

    check(f, torch.randn(3, 4), name="sum")


# ---- products


def test_matmul_of_all_ranks_and_orders():
    torch.manual_seed(1)
    for ra, rb in itertools.product(range(1, 5), repeat=2):
        for a, b in itertools.product(layouts(*(2, 3, 4, 5)[4 - ra :]),
                                      layouts(*((2, 3, 5, 6)[4 - rb :] if rb > 1 else (5,)))):
            check(torch.matmul, a, b)


def test_products():
    a, b, c = torch.randn(4, 5), torch.randn(5, 6), torch.randn(4, 6)
    A, B, C = torch.randn(3, 4, 5), torch.randn(3, 5, 6), torch.randn(3, 4, 6)
    v, w, bias = torch.randn(5), torch.randn(5), torch.randn(6)
    check(lambda: (a @ b, a.mm(b), torch.mm(b.t(), a.t()), A.bmm(B), a.mv(v), v.dot(w), torch.outer(v, bias),
                   a.matmul(v), v @ b))
    check(lambda: (torch.addmm(c, a, b), torch.addmm(bias, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2),
                   c.addmm(a, b, beta=0), torch.addmm(c[:, :1], a, b)))
    check(lambda: (torch.baddbmm(C, A, B), torch.baddbmm(C[0], A, B, alpha=0.125),
                   torch.addmv(torch.randn(4) * 0, a, v)))
    nan = torch.full((4, 6), NAN)
    check(lambda: torch.addmm(nan, a, b, beta=0))
    check(lambda: (F.linear(a, b.t().contiguous()), F.linear(a, b.t(), bias), F.linear(A, b.t(), bias),
                   F.linear(v, b.t(), bias)))
    check(lambda: (a.double() @ b.double(), F.linear(A.double(), b.double().t())), name="sum")
    for k in (0, 1):
        check(lambda a, b: (a @ b, F.linear(a, b.t()), torch.addmm(a[:, :0].sum(1)[:, None], a, b)), torch.randn(3, k),
              torch.randn(k, 2))
        check(lambda a, b: (a.t() @ b.t(), a.t().mm(b.t())), torch.randn(3, k), torch.randn(2, 3))
    rejected(lambda: a @ c)
    rejected(lambda: torch.mm(A, b))
    rejected(lambda: A.bmm(B[:1]))
    rejected(lambda: torch.addmm(torch.randn(5, 6), a, b))
    rejected(lambda: F.linear(a, b))
    rejected(lambda: a @ b.double())
    rejected(lambda: v.dot(bias))


def test_addmm_in_place():
    def f(c, a, b):
        y = c + 1
        z = y.addmm_(a, b, alpha=2)
        return y, z is y and torch.tensor(1)

    check(f, torch.randn(4, 6), torch.randn(4, 5), torch.randn(5, 6))


@pytest.mark.parametrize("bias", [True, False])
def test_cells(bias):
    torch.manual_seed(2)
    x, h, c = torch.randn(3, 5), torch.randn(3, 4), torch.randn(3, 4)
    for cell in (torch.nn.LSTMCell(5, 4, bias), torch.nn.GRUCell(5, 4, bias), torch.nn.RNNCell(5, 4, bias),
                 torch.nn.RNNCell(5, 4, bias, "relu")):
        weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
        if isinstance(cell, torch.nn.LSTMCell):
            check(lambda x, h, c: torch.lstm_cell(x, (h, c), *weights), x, h, c)
            check(lambda x, h, c: torch.lstm_cell(x, (h.t().contiguous().t(), c), *weights), x, h, c)
        else:
            f = {torch.nn.GRUCell: torch.gru_cell}.get(type(cell)) \
                or (torch.rnn_relu_cell if cell.nonlinearity == "relu" else torch.rnn_tanh_cell)
            check(lambda x, h: f(x, h, *weights), x, h)
    lstm = torch.nn.LSTMCell(5, 4, bias)

    def loop(x, h, c):
        for _ in range(3):
            h, c = lstm(x, (h, c))
        return h, c

    check(loop, x, h, c)
    rejected(lambda x, h: torch.gru_cell(x, h, *weights), x, h)


# ---- normalisation


def test_normalisation():
    for x in itertools.chain(layouts(6, 4), layouts(2, 6, 5), layouts(2, 6, 4, 5)):
        channels, last = x.shape[1], x.shape[-1]
        mean, var, w, b = torch.randn(channels), torch.rand(channels) \
            + 0.5, torch.randn(channels), torch.randn(channels)
        lw, lb = torch.randn(last), torch.randn(last)
        check(lambda t: F.layer_norm(t, (last,)), x, name="sum")
        check(lambda t: F.layer_norm(t, t.shape[1:]), x, name="sum")
        check(lambda t: torch.layer_norm(t, [last], lw, lb, 1e-3), x, name="sum")
        check(lambda t: F.batch_norm(t, mean, var, w, b), x, name="sum")
        check(lambda t: F.batch_norm(t, mean, var), x, name="sum")
        check(lambda t: torch.batch_norm(t, w, None, mean, var, False, 0.1, 1e-5, True), x, name="sum")
        check(lambda t: F.rms_norm(t, (last,), lw), x, name="sum")
        check(lambda t: F.rms_norm(t, (last,), eps=1e-3), x, name="sum")
        if x.dim() > 2:
            check(lambda t: F.group_norm(t, 3, w, b), x, name="sum")
            check(lambda t: F.group_norm(t, 2), x, name="sum")
    x = torch.randn(4, 6)
    rejected(lambda: F.layer_norm(x, (5,)))
    rejected(lambda: F.batch_norm(x, torch.zeros(5), torch.ones(5)))
    rejected(lambda: F.group_norm(x, 4))
    check(lambda t: F.layer_norm(t, (6,)), torch.full((4, 6), 1e4), name="sum")


def test_group_norm_with_infinite_weights():
    """(x - mean) * scale and x * scale - mean * scale differ where the scale is infinite; torch has the second."""
    torch.manual_seed(4)
    values = torch.tensor([INF, -INF, NAN, 0.0, 1.0, -2.5])
    for sizes, groups in (((2, 6, 5), 2), ((2, 6, 3, 4), 6), ((3, 6, 1), 2), ((2, 6, 3, 4), 1), ((2, 6), 3)):
        x = torch.randn(sizes)
        for _ in range(6):
            w, b = values[torch.randint(0, 6, (6,))], values[torch.randint(0, 6, (6,))]
            check(lambda x: (F.group_norm(x, groups, w, b), F.group_norm(x, groups, w),
                             F.group_norm(x, groups, None, b)), x, name="sum")  # noqa: B023


def test_training_batch_norm_updates_its_statistics():
    norm = torch.nn.BatchNorm1d(4).train()
    twin = torch.nn.BatchNorm1d(4).train()
    x = torch.randn(8, 4)
    accelerated = dycl.accelerate(lambda t: norm(t * 2))
    with torch.no_grad():
        for _ in range(3):
            same(twin(x * 2), accelerated(x), "sum")
    same(twin.running_mean, norm.running_mean, "sum")
    same(twin.running_var, norm.running_var, "sum")


# ---- convolution and pooling


def test_convolution():
    torch.manual_seed(3)
    for x in layouts(2, 6, 9, 7):
        w, dw, pw, b = torch.randn(4, 6, 3, 3), torch.randn(6, 1, 3, 3), torch.randn(4, 6, 1, 1), torch.randn(4)
        check(lambda t: (F.conv2d(t, w), F.conv2d(t, w, b, 2, 1), F.conv2d(t, w, None, (1, 2), (2, 0), (1, 2))), x)
        check(lambda t: (F.conv2d(t, dw, groups=6), F.conv2d(t, pw, b), torch.conv2d(t, w, padding="same"),
                         torch.conv2d(t, w, b, padding="valid")), x)
        check(lambda t: F.conv2d(t, w.contiguous(memory_format=torch.channels_last), b, padding=1), x)
        check(lambda t: F.relu(F.batch_norm(F.conv2d(t, w, b), torch.zeros(4) * 0, b * b + 1)), x, left=None)
    for x in layouts(6, 9, 7):
        check(lambda t: (F.conv2d(t, w), F.conv2d(t, w, b, 2, 1)), x)
    for x in itertools.chain(layouts(2, 6, 9), layouts(6, 9)):
        w, b = torch.randn(4, 6, 3), torch.randn(4)
        check(lambda t: (F.conv1d(t, w), F.conv1d(t, w, b, 2, 1), F.conv1d(t, w, b, 1, "same", 2),
                         F.conv1d(t, torch.ones(6, 1, 2) * 1, groups=6)), x, left=None)
    x = torch.randn(2, 6, 9, 7)
    rejected(lambda: F.conv2d(x, torch.randn(4, 5, 3, 3)))
    rejected(lambda: F.conv2d(x, torch.randn(4, 6, 3, 3), stride=0))
    rejected(lambda: F.conv2d(x, torch.randn(4, 6, 11, 3)))


def test_pooling():
    for x in layouts(2, 6, 9, 8):
        check(lambda t: (F.max_pool2d(t, 2), F.max_pool2d(t, 3, 2, 1), torch.max_pool2d(t, (3, 2), ceil_mode=True),
                         F.max_pool2d(t, 2, dilation=2)), x)
        check(lambda t: (F.avg_pool2d(t, 2), F.avg_pool2d(t, 3, 2, 1), F.avg_pool2d(t, 3, 2, 1, True, False),
                         F.avg_pool2d(t, (2, 3), ceil_mode=True)), x, name="sum")
        check(lambda t: (F.adaptive_avg_pool2d(t, 1), F.adaptive_avg_pool2d(t, (3, None)),
                         F.adaptive_avg_pool2d(t, (5, 7))), x, name="sum")
    for x in layouts(6, 9, 8):
        check(lambda t: (F.max_pool2d(t, 2), F.avg_pool2d(t, 2), F.adaptive_avg_pool2d(t, 2)), x, name="sum")
    for x in itertools.chain(layouts(2, 6, 9), layouts(6, 9)):
        check(lambda t: (F.max_pool1d(t, 2), F.avg_pool1d(t, 3, 2), F.adaptive_avg_pool1d(t, 4)), x, name="sum")
    x = torch.tensor([[[[1.0, NAN, 2.0, INF], [3.0, 4.0, -INF, 5.0], [0.0, -0.0, -1.0, NAN],
                        [-INF, -INF, -INF, -INF]]]])
    check(lambda t: (F.avg_pool2d(t, 2), F.adaptive_avg_pool2d(t, 2)), x, name="sum")
    check(lambda t: F.max_pool2d(t, 2, return_indices=True), x)
    rejected(lambda t: F.max_pool2d(t, 2, padding=2), x)
    rejected(lambda t: F.avg_pool2d(t, 9), x)


@pytest.mark.parametrize("kernel", (2, 3, (3, 2)))
def test_averages_at_the_edges(kernel):
    """Which elements a mean is of, where windows reach over the image or over what surrounds it."""
    for stride, padding, ceil, padded in itertools.product((1, 2, 3), (0, 1), (False, True), (False, True)):
        x = torch.randn(2, 3, 8, 7)
        check(lambda t: F.avg_pool2d(t, kernel, stride, padding, ceil, padded), x, name="sum")


def test_maximum_of_nan_and_infinity():
    x = torch.tensor([[[[1.0, NAN, 2.0, INF], [3.0, 4.0, -INF, 5.0], [0.0, -0.0, -1.0, NAN],
                        [-INF, -INF, -INF, -INF]]]])
    check(lambda t: (F.max_pool2d(t, 2), F.max_pool2d(t, 2, 1), F.max_pool2d(t, 3, 1, 1)), x)
    check(lambda t: F.max_pool2d(t, 2), torch.full((1, 16, 4, 4), -INF))


# ---- attention


def test_attention():
    torch.manual_seed(5)
    b, h, l, s, e = 2, 4, 5, 7, 8
    # torch's kernel reads memory that nobody wrote where rows of the query overlap
    for q in layouts(b, h, l, e, windows=False):
        k, v = torch.randn(b, h, s, e), torch.randn(b, h, s, e)
        kt = torch.randn(b, s, h, e).transpose(1, 2)
        sdpa = F.scaled_dot_product_attention
        check(lambda q: (sdpa(q, k, v), sdpa(q, k, v, is_causal=True), sdpa(q, kt, kt, scale=0.3),
                         sdpa(q, k, v, None, 0.0, False)), q)
        for mask in (torch.randn(l, s), torch.randn(b, 1, l, s), torch.randn(1, s), torch.randn(b, h, l, s) > 0,
                     torch.randn(b, 1, 1, s) > -1, torch.randn(h, l, s), torch.randn(s, l).t()):
            check(lambda q: sdpa(q, k, v, mask), q)
        check(lambda q: sdpa(q, k[:, :2], v[:, :2], enable_gqa=True), q)
        check(lambda q: sdpa(q, k, torch.ones(b, h, s, 6) * 0.5), q, left=None)
    q, k, v = torch.randn(h, l, e), torch.randn(h, s, e), torch.randn(h, s, e)
    check(lambda: (sdpa(q, k, v), sdpa(q, k, v, torch.zeros(l, s) + 1), sdpa(q[0], k[0], v[0])), left=None)
    mask = torch.ones(l, s) > 0
    mask[1] = False
    check(lambda q: (sdpa(q, k, v, mask), sdpa(q[None], k[None], v[None], mask)), q)  # a row that sees nothing is 0
    least = torch.zeros(l, s)
    least[2] = torch.finfo(torch.float32).min
    least[3] = -INF
    check(lambda q: (sdpa(q, k, v, least), sdpa(q[None], k[None], v[None], least)), q)
    rejected(lambda: sdpa(q, k[:, :, :4], v))
    rejected(lambda: sdpa(q[None], k[None], v[None], torch.zeros(l, s + 1)))


def test_attention_between_projections():
    torch.manual_seed(6)
    w = [torch.randn(16, 16) / 4 for _ in range(4)]

    def block(x):
        q, k, v = (F.linear(x, m).view(2, -1, 4, 4).transpose(1, 2) for m in w[:3])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(2, -1, 16), w[3])

    for length in (1, 2, 9):
        check(block, torch.randn(2, length, 16))


# ---- the rest


def test_dropout_that_drops_nothing_is_its_input():
    x = torch.randn(2, 3, 4, 4)

    @dycl.accelerate
    def f(x):
        y = x + 1
        return [
            F.dropout(x, 0.5, False) is x, F.dropout(y, 0.5, False) is y, F.dropout(y, 0.0) is y,
            torch.dropout(y, 0.3, False) is y, F.dropout2d(y, training=False) is y,
            F.alpha_dropout(y) is y, F.dropout(y, training=False, inplace=True) is y,
        ]  # fmt: skip

    with torch.no_grad():
        assert all(f(x))
        assert dycl.stats(f)["torch"] == 0
    rejected(lambda: F.dropout(x, 1.5, False))


def test_dropout_draws_the_same_numbers():
    x = torch.randn(50)

    def f(x):
        return F.dropout(x * 2, 0.3)

    with torch.no_grad():
        torch.manual_seed(7)
        expected, after = f(x), torch.rand(1)
        torch.manual_seed(7)
        actual, after_too = dycl.accelerate(f)(x), torch.rand(1)
    same(expected, actual)
    same(after, after_too)


def test_gates_and_losses():
    for x in itertools.chain(layouts(4, 6), layouts(2, 6, 4, 4)):
        slope = torch.rand(x.shape[1])
        check(lambda t: (F.glu(t), F.glu(t, 1), F.prelu(t, slope), F.prelu(t, slope[:1]), F.hardtanh(t, -0.5, 0.25),
                         F.threshold(t, 0.1, 20.0)), x)
        check(lambda t: (F.mse_loss(t, t * 0.5), F.l1_loss(t, t.neg(), reduction="sum"),
                         F.mse_loss(t, t + 1, reduction="none")), x, name="sum")
    x = torch.randn(4, 5)
    rejected(lambda: F.glu(x))
    rejected(lambda: F.hardtanh(x, 1.0, -1.0))
    rejected(lambda: F.prelu(x, torch.rand(3)))
    check(lambda t: F.hardtanh(t * 3, inplace=True), x)
    assert math.isclose(float(dycl.accelerate(lambda t: F.mse_loss(t, t))(x)), 0)


@pytest.mark.parametrize("kind", ["linear", "conv2d"])
def test_a_large_bias_costs_few_roundings(kind):
    """It is added to the finished sum; eager's products add to it once for each few hundred of k, three times here. As
    the begin of the sum it would make each partial sum as coarse as the bias is: seven times eager's error."""
    generator = torch.Generator().manual_seed(29)
    below = lambda least, most: int(torch.randint(least, most, (), generator=generator))
    for number in range(12):
        if kind == "linear":
            inner, out = below(40, 900), below(40, 300)
            layer, shape = torch.nn.Linear(inner, out), (below(1, 4) if number % 2 else below(4, 150), inner)
        else:
            inner = below(16, 96)
            layer, shape = torch.nn.Conv2d(inner, below(16, 96), below(1, 4), stride=below(1, 3),
                                           padding=1), (1, inner, below(8, 20), below(8, 20))
        with torch.no_grad():
            layer.bias.copy_(1000 * torch.randn(layer.bias.shape, generator=generator))
            x = torch.randn(shape, generator=generator)
            accelerated = dycl.accelerate(copy.deepcopy(layer))
            eager, exact = layer(x), copy.deepcopy(layer).double()(x.double())
            least = 1e-4  # what adding up the products costs, where the bias happens to be small
            for run in range(4):
                for name, y in (("eager", eager), ("dycl", accelerated(x))):
                    error = (y - exact).abs() - (3.5 * 2**-24) * exact.abs()  # a rounding is up to 2**-24
                    assert float(error.max()) < least, (name, run, layer, shape, float(error.max()))


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("groups", (1, 3))
def test_how_convolutions_lie(groups, threads):
    """torch chooses among its ways by sizes and by the number of threads; each says how the result lies."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for n, inner, length, kernel, padding in itertools.product((1, 17), (1, 2), (1, 2), (1, 2), (0, 2)):
            if length + 2 * padding < kernel:
                continue
            channels, outer = groups * inner, 2 * groups
            for x in (torch.randn(n, channels, length), torch.randn(n, length, channels).transpose(1, 2)):
                for w in (torch.randn(outer, inner, kernel), torch.randn(outer, kernel, inner).transpose(1, 2),
                          torch.randn(2 * outer, kernel, inner)[1::2].permute(0, 2, 1),
                          torch.randn(300).as_strided((outer, inner, kernel), (4 * inner * kernel, 1, 2 * inner))):
                    for function in (
                        lambda x, w=w, p=padding: F.conv1d(x, w, None, 1, p, 1, groups),
                        lambda x, w=w, p=padding: F.conv2d(x[..., None], w[..., None], None, 1, (p, 0), 1, groups),
                    ):
                        accelerated = dycl.accelerate(function)
                        with torch.no_grad():
                            assert accelerated(x).stride() == function(x).stride(), (x.stride(), w.stride(), padding)
    finally:
        torch.set_num_threads(before)
