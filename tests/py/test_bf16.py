"""accelerate(model, precision="bf16"): constant weights and their products in bfloat16, sums and everything else in
float32."""

import copy
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
import started
from tolerance import BF16_MODEL, BF16_OPERAND, F32_SUM

needs_bf16 = pytest.mark.skipif(not dycl.info()["bf16"],
                                reason="this processor has no AVX512_BF16, or DYCL_ISA excludes AVX-512")


def reduced(module):
    return dycl.accelerate(copy.deepcopy(module), precision="bf16")


def assert_within(got, exact, size, operands, what=""):
    """|got - exact| where each product was of so many rounded operands; size: the same sum of absolute values."""
    bound = size * (operands * BF16_OPERAND + F32_SUM) + 1e-30
    worst = ((got.double() - exact).abs() / bound).max().item()
    assert got.dtype == torch.float32 and worst <= 1, f"{what}: {worst} times the bound"


@needs_bf16
@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("inner, outer", ((64, 64), (65, 33), (700, 1030), (1, 5), (33, 1)))
@pytest.mark.parametrize("rows", (1, 2, 4, 5, 17, 130))
def test_linear(rows, inner, outer, bias):
    torch.manual_seed(rows * inner + outer)
    linear = nn.Linear(inner, outer, bias=bias).eval()
    model, x = reduced(nn.Sequential(linear)), torch.randn(rows, inner)
    w = linear.weight.detach().double()
    constant = linear.bias.detach().double() if bias else 0
    exact, size = x.double() @ w.t() + constant, x.double().abs() @ w.t().abs() + (constant.abs() if bias else 0)
    with torch.no_grad():
        first = model(x)
        for _ in range(4):
            assert torch.equal(model(x), first), "the first result is as the later ones"
    assert_within(first, exact, size, 2, "both rounded")
    text = dycl.explain(model)
    assert "bf16" in text, text
    if "bf16 gemv" in text:  # only the weights are rounded
        rounded = x.double() @ linear.weight.detach().bfloat16().double().t() + constant
        assert_within(first, rounded, size, 0, "weights rounded, nothing else")
    if inner * outer > 1000:
        assert ((first.double() - exact).abs() / size).max() > 3e-5, \
            "this is not bfloat16: the test would not see anything"
    assert torch.equal(model[0].weight, linear.weight)


@needs_bf16
@pytest.mark.parametrize("rows", (1, 60))
def test_weights_the_other_way_round(rows):
    torch.manual_seed(3)

    class Transposed(nn.Module):  # as GPT-2's Conv1D
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(300, 500)), nn.Parameter(torch.randn(500))

        def forward(self, x):
            return torch.addmm(self.bias, x, self.weight)

    plain = Transposed().eval()
    model, x = reduced(plain), torch.randn(rows, 300)
    w, b = plain.weight.detach().double(), plain.bias.detach().double()
    with torch.no_grad():
        for _ in range(3):
            assert_within(model(x), x.double() @ w + b, x.double().abs() @ w.abs() + b.abs(), 2)
    assert "bf16" in dycl.explain(model)


@needs_bf16
@pytest.mark.parametrize("case", ((16, 32, 3, {"padding": 1}), (3, 20, 7, {"stride": 2}), (32, 64, 1, {}),
                                  (24, 24, 3, {"groups": 24}), (32, 32, 3, {"groups": 4, "dilation": 2})))
def test_convolution(case):
    c, oc, window, more = case
    torch.manual_seed(c)
    layer = nn.Conv2d(c, oc, window, **more).eval()
    model, x = reduced(nn.Sequential(layer, nn.ReLU())), torch.randn(2, c, 19, 22)
    w, b, x64 = layer.weight.detach().double(), layer.bias.detach().double(), x.double()
    more = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    with torch.no_grad():
        for _ in range(3):
            assert_within(model(x), F.conv2d(x64, w, b, **more).relu(), F.conv2d(x64.abs(), w.abs(), b.abs(), **more),
                          2)


@needs_bf16
def test_writes_to_weights_are_noticed_and_the_memory_is_half():
    torch.manual_seed(4)
    plain = nn.Sequential(nn.Linear(512, 800, bias=False)).eval()
    before = dycl.stats(dycl.accelerate(nn.Identity()))["packed_bytes"]
    model, x = reduced(plain), torch.randn(1, 512)
    with torch.no_grad():
        for scale in (1, 0.5, 3):
            model[0].weight.mul_(scale)
            plain[0].weight.mul_(scale)
            for _ in range(3):
                torch.testing.assert_close(model(x), F.linear(x, plain[0].weight.bfloat16().float()), rtol=1e-5,
                                           atol=1e-4)
        model[0].weight.data.fill_(0.25)
        for _ in range(3):
            torch.testing.assert_close(model(x), 0.25 * x.sum(1, keepdim=True).expand(1, 800), rtol=1e-5, atol=1e-4)
    assert 0 <= dycl.stats(model)["packed_bytes"] - before <= 512 * 800 * 2 + 4096


@needs_bf16
def test_what_is_not_a_parameter_stays_float32():
    torch.manual_seed(5)
    w, x = torch.randn(300, 200), torch.randn(9, 200)
    function = dycl.accelerate(lambda x, w: F.linear(x, w) + torch.softmax(x @ x.t(), -1).sum(), precision="bf16")
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(function(x, w), F.linear(x, w) + torch.softmax(x @ x.t(), -1).sum(), rtol=1e-5,
                                       atol=1e-4)


@needs_bf16
def test_nan_and_infinity_stay():
    model = reduced(nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 20)).eval())
    for rows in (1, 50):
        x = torch.randn(rows, 40)
        x[0, 3] = float("nan")
        with torch.no_grad():
            for _ in range(3):
                result = model(x)
                assert result[0].isnan().all() and result[1:].isfinite().all()
            x[0, 3] = float("inf")
            assert not model(x)[0].isfinite().any()
            x[0, 3] = 1.0
            assert model(x).isfinite().all()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(width, 4, batch_first=True), nn.LayerNorm(width)
        self.up, self.down, self.norm2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@needs_bf16
@pytest.mark.parametrize("tokens", (1, 3, 40))
def test_a_transformer(tokens):
    torch.manual_seed(6)
    plain = nn.Sequential(*[Block(128) for _ in range(4)]).eval()
    model, x = reduced(plain), torch.randn(1, tokens, 128)
    with torch.no_grad():
        expected = plain(x)
        for _ in range(4):
            result = model(x)
            error = ((result - expected).norm() / expected.norm()).item()
            assert 1e-5 < error < BF16_MODEL, error
    stats = dycl.stats(model)
    assert stats["calls"] == 4 and stats["plain_calls"] == 0, "never in torch, whose results differ"


@needs_bf16
def test_the_outermost_call_decides():
    torch.manual_seed(7)
    inner = nn.Sequential(nn.Linear(90, 90)).eval()
    x = torch.randn(6, 90)
    with torch.no_grad():
        expected = inner(x)
        dycl.accelerate(inner, precision="bf16")
        outer = dycl.accelerate(nn.Sequential(inner))
        for _ in range(3):
            torch.testing.assert_close(outer(x), expected, rtol=1e-5, atol=1e-5)
            assert not torch.allclose(inner(x), expected, rtol=1e-5, atol=1e-5)


def test_requests_that_cannot_be_met():
    model = nn.Linear(2, 2)
    for wrong in ("fp16", "torch.int8", None, torch.float16, torch.Tensor):
        with pytest.raises(ValueError, match="precision"):
            dycl.accelerate(model, precision=wrong)
    with pytest.raises(ValueError, match="pack"):
        dycl.accelerate(model, precision="bf16", pack=False)
    assert "_compiled_call_impl" not in model.__dict__
    program = ("import torch, dycl\ntry:\n    dycl.accelerate(torch.nn.Linear(2, 2), precision='bf16')\n"
               "except RuntimeError as error:\n    print('refused:', error)")
    done = started.run(["-c", program], env={**os.environ, "DYCL_ISA": "avx2"}, timeout=60)
    assert "refused: precision='bf16' needs a processor with AVX512_BF16" in done.stdout, done.stderr


@needs_bf16
@pytest.mark.parametrize("rows", (1, 3))
def test_place_of_the_largest_element(rows):
    class Best(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(301, 4111)

        def forward(self, x):
            return self.head(x * 1).argmax(-1)

    torch.manual_seed(rows)
    plain = Best()
    with torch.no_grad():  # each row has one beside it that differs by what rounding takes away
        plain.head.weight[2055:4110] = plain.head.weight[:2055] + 1e-4 * torch.randn(2055, 301)
        plain.head.bias[2055:4110] = plain.head.bias[:2055]
    model, head = reduced(plain), plain.head
    rounded, differs = head.weight.detach().bfloat16().double(), 0
    with torch.no_grad():
        for _ in range(150):
            x = torch.randn(rows, 301)
            exact = x.double() @ rounded.t() + head.bias.double()
            got = model(x)
            differs += int((got != plain(x)).sum())
            lost = exact.amax(-1) - exact.gather(1, got[:, None])[:, 0]
            assert (lost <= 2 * F32_SUM * (x.double().abs() @ rounded.abs().t()).amax(-1)).all(), \
                "not the largest, by more than rounding"
    assert differs, "this is not bfloat16: the test would not see anything"
    assert "largest of product" in dycl.explain(model)
