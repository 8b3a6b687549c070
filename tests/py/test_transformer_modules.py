"""nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.TransformerEncoder without gradients: torch calls one
operator for all of their forward, whose results have strides, NaN and warnings of their own, and no module within is
called."""

import dycl
import pytest
import torch
from same import same
from torch import nn

WIDTH, HEADS = 8, 2


def masks(batch, steps):
    last = torch.zeros(batch, steps, dtype=torch.bool)
    last[0, -1] = True
    row = last.clone()
    row[0] = True
    causal = torch.triu(torch.ones(steps, steps, dtype=torch.bool), 1)
    blind = causal.clone()
    blind[0] = True
    return {
        "none": {}, "padded": {"pad": last}, "all padded": {"pad": row}, "causal": {"mask": causal}, "blind":
        {"mask": blind}, "both": {"mask": causal, "pad": last}, "both, all padded": {"mask": causal, "pad": row},
        "of each head": {"mask": causal.expand(batch * HEADS, steps, steps).clone()}, "floats":
        {"mask": torch.linspace(-1, 1, steps * steps).view(steps, steps)}, "is_causal":
        {"mask": causal, "is_causal": True},
    }


def named(given, pad, mask):
    return {{"pad": pad, "mask": mask}.get(name, name): value for name, value in given.items()}


MASKS = list(masks(2, 3))
SIZES = (2, 3), (1, 4), (3, 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"average_attn_weights": False}],
                         ids=["weights", "none", "each"])
def test_attention(options, name, size):
    given = named(masks(*size)[name], "key_padding_mask", "attn_mask")

    def program(model, x):
        y = x * 2
        return model(y, y, y, **given, **options), model(x, x, x, **options), model(y, x, y, **given, **options)

    def make():
        return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval(), torch.randn(*size, WIDTH)

    same(program, make, like="matmul")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layer(activation, first, name, size):
    given = named(masks(*size)[name], "src_key_padding_mask", "src_mask")

    def program(model, x):
        return model(x * 2, **given), model(x), model(model(x * 3))

    def make():
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, activation=activation, norm_first=first, batch_first=True)
        return layer.eval(), torch.randn(*size, WIDTH)

    same(program, make, like="matmul")


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", ["none", "padded", "causal", "both", "is_causal"])
@pytest.mark.filterwarnings("ignore")
def test_encoder(name, checked):
    given = named(masks(2, 3)[name], "src_key_padding_mask", "mask")

    def program(model, x):
        y = model(x * 2, **given)
        return y, model(y + 1), y.sum(-1) * 2

    def make():
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True)
        return nn.TransformerEncoder(layer, 2, mask_check=checked).eval(), torch.randn(2, 3, WIDTH)

    same(program, make, like="matmul")


@pytest.mark.parametrize("layer, dtype", [(False, torch.float64), (True, torch.float64), (False, torch.bfloat16)])
def test_other_dtypes(layer, dtype):
    def program(model, x):
        y = x + x
        return model(y) if layer else model(y, y, y)

    def make():
        module = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True) if layer else nn.MultiheadAttention(
            WIDTH, HEADS, batch_first=True)
        return module.eval().to(dtype), torch.randn(2, 3, WIDTH, dtype=dtype)

    same(program, make, like="matmul")


def test_operands_in_other_orders():
    def program(layer, attention, x):
        y = x.transpose(0, 1) * 2
        return layer(y), layer(x.transpose(0, 1)), attention(y, y, y), layer(x[:, ::2]), layer(x[:0])

    same(program, lambda: (nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True).eval(),
                           nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval(), torch.randn(4, 3, WIDTH)),
         like="matmul")


class Noted(nn.Linear):
    called = 0

    def forward(self, x):
        Noted.called += 1
        return super().forward(x) * 2


def test_modules_within_are_not_called():
    def program(layer, x):
        y = layer(x * 2)
        layer.linear1 = Noted(WIDTH, 16)
        return y, layer(x), Noted.called

    def make():
        Noted.called = 0
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True).eval(), torch.randn(2, 3, WIDTH)

    same(program, make, like="matmul")


def test_sizes_that_do_not_fit():
    def program(layer, attention, x):
        outcomes = []
        for module, args in ((layer, (x * 2,)), (attention, (x * 2,) * 3), (attention, (x[0] * 2,) * 3)):
            try:
                outcomes.append(module(*args))
            except (RuntimeError, AssertionError) as error:
                outcomes.append(str(error))
        return outcomes

    same(program, lambda: (nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True).eval(),
                           nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval(), torch.randn(4, 3, 6)),
         like="matmul", recorded=None)


@pytest.mark.parametrize("name", MASKS)
def test_they_are_recorded(name):
    given = named(masks(2, 3)[name], "src_key_padding_mask", "src_mask")
    layer = dycl.accelerate(nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True).eval())
    x = torch.randn(2, 3, WIDTH)
    with torch.no_grad():
        layer(x, **given)
        layer(x, **given)
    stats = dycl.stats(layer)
    assert stats["torch"] == 0 and stats["segments"] == 2, stats


def test_a_mask_that_learns():
    """torch has no derivative and says so when a gradient is asked for."""
    def program(x, mask, *weights):
        y = torch._transformer_encoder_layer_fwd(x * 2, WIDTH, HEADS, *weights[:4], True, False, 1e-5, *weights[4:],
                                                 mask, 0)
        return y.requires_grad, type(y.grad_fn), y.detach()

    def make():
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True)
        attention = layer.self_attn
        parameters = (attention.in_proj_weight, attention.in_proj_bias, *attention.out_proj.parameters(),
                      *layer.norm1.parameters(), *layer.norm2.parameters(), *layer.linear1.parameters(),
                      *layer.linear2.parameters())
        return torch.randn(2, 3, WIDTH), torch.eye(3, requires_grad=True), *(p.detach() for p in parameters)

    same(program, make, like="matmul", grad=True)
