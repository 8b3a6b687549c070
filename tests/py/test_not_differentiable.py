"""Operands that torch has no gradient for, or that stand where numbers mostly do: whether that is an error, and where
it is raised, is eager's."""

import warnings

import dycl
import pytest
import torch
import torch.nn.functional as F

X, IMAGE = torch.linspace(-2, 2, 12).view(3, 4), torch.linspace(-1, 3, 72).view(2, 4, 3, 3)
PLACES = torch.tensor([0, 1, 2])

CALLS = {
    "bn mean": lambda s: F.batch_norm(IMAGE, s, torch.ones(4)),
    "bn var": lambda s: F.batch_norm(IMAGE, torch.zeros(4), s),
    "bn train": lambda s: F.batch_norm(IMAGE, s, torch.ones(4), training=True),
    "in mean": lambda s: F.instance_norm(IMAGE, s, torch.ones(4)),
    "in eval": lambda s: F.instance_norm(IMAGE, s, torch.ones(4), use_input_stats=False),
    "ce weight": lambda s: F.cross_entropy(X, PLACES, weight=s),
    "ce weight smooth": lambda s: F.cross_entropy(X, PLACES, weight=s, label_smoothing=0.1),
    "nll weight": lambda s: F.nll_loss(X, PLACES, weight=s),
    "mmargin": lambda s: F.multi_margin_loss(X, PLACES, weight=s),
    "bce weight": lambda s: F.binary_cross_entropy(X.sigmoid(), X.sigmoid(), weight=s),
    "bcel weight": lambda s: F.binary_cross_entropy_with_logits(X, X.sigmoid(), weight=s),
    "bcel pos": lambda s: F.binary_cross_entropy_with_logits(X, X.sigmoid(), pos_weight=s),
    "gaussian": lambda s: F.gaussian_nll_loss(X, X, s.expand(3, 4)),
    "heaviside": lambda s: torch.heaviside(X, s),
    "nextafter": lambda s: torch.nextafter(X, s),
    "copysign": lambda s: torch.copysign(X, s),
    "fmod": lambda s: torch.fmod(X, s),
    "floor_div": lambda s: torch.floor_divide(X, s),
    "bucketize": lambda s: torch.bucketize(X, s),
    "searchsorted": lambda s: torch.searchsorted(s, X),
    "histc": lambda s: torch.histc(s),
    "gcdlike trunc": lambda s: torch.div(X, s, rounding_mode="floor"),
    "igamma": lambda s: torch.igamma(s, X.abs()),
    "zeta": lambda s: torch.special.zeta(s + 2, X.abs() + 1),
    "polygamma": lambda s: torch.polygamma(1, s),
    "dropout": lambda s: F.dropout(s, 0.5),
    "bernoulli": lambda s: torch.bernoulli(s * 0.5),
    "multinomial": lambda s: torch.multinomial(s, 2),
    "normal": lambda s: torch.normal(s, 1.0),
    "quantile": lambda s: torch.quantile(X, s * 0.5),
    "renorm": lambda s: torch.renorm(s[None], 2, 0, 1),
    "ldexp": lambda s: torch.ldexp(X, s),
    "isclose": lambda s: torch.isclose(X, s),
    "hinge": lambda s: F.hinge_embedding_loss(X, s),
    "cos": lambda s: F.cosine_embedding_loss(X, X, s[:3]),
    "margin": lambda s: F.margin_ranking_loss(X, X, s),
    "soft_margin": lambda s: F.soft_margin_loss(X, s.expand(3, 4)),
    "kl": lambda s: F.kl_div(X, s.expand(3, 4)),
    "mse": lambda s: F.mse_loss(X, s.expand(3, 4)),
    "huber": lambda s: F.huber_loss(X, s.expand(3, 4)),
    "prelu": lambda s: F.prelu(IMAGE, s),
    "clampt": lambda s: torch.clamp(X, s, s + 1),
    "where": lambda s: torch.where(X > 0, s, X),
    "embed": lambda s: F.embedding(PLACES, s[:, None]),
    "ebag": lambda s: F.embedding_bag(torch.tensor([[0, 1], [2, 3]]), torch.randn(4, 3), mode="sum",
                                     per_sample_weights=s.view(2, 2)),
    "lnw": lambda s: F.layer_norm(X, (4,), s, s),
    "gnw": lambda s: F.group_norm(IMAGE, 2, s, s),
    "argsort": lambda s: torch.argsort(s),
    "sign": lambda s: torch.sign(s),
    "round": lambda s: torch.round(s),
    "eq": lambda s: torch.eq(X, s),
    "one_hot": lambda s: F.one_hot(s.long()),
    "bincount": lambda s: torch.bincount(PLACES, s[:3]),
    "cdist": lambda s: torch.cdist(X, s[None]),
    "pdist": lambda s: F.pdist(s[:, None]),
    "trapz": lambda s: torch.trapezoid(X, s),
    "interp": lambda s: F.interpolate(s[None, None], scale_factor=2),
    "masked_fill": lambda s: X.masked_fill(X > 0, s.sum()),
    "index_fill": lambda s: X.index_fill(0, PLACES, s.sum()),
    "lerpw": lambda s: torch.lerp(X, X, s),
    "addcdiv": lambda s: torch.addcdiv(X, X, s),
    "arange": lambda s: torch.arange(s.sum().item()),
    "nan_to_num": lambda s: torch.nan_to_num(s),
}


def outcome(call, of_a_result):
    weight = torch.ones(4, requires_grad=True)
    torch.manual_seed(0)
    try:
        try:
            y = call(weight * 1.0 if of_a_result else weight)
        except Exception as error:  # noqa: BLE001: it has to be eager's
            return "where it is called", type(error), str(error)
        found = y.requires_grad, y.detach().clone(), torch.rand(1)
        if y.requires_grad:
            y.sum().backward()
        return (*found, weight.grad)
    except Exception as error:  # noqa: BLE001
        return "later", type(error), str(error)


@pytest.mark.parametrize("of_a_result", (False, True))
@pytest.mark.parametrize("name", CALLS)
def test_calls(name, of_a_result):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = outcome(CALLS[name], of_a_result)
        fast = dycl.accelerate(lambda: outcome(CALLS[name], of_a_result))
        for _ in range(3):
            got = fast()
            assert len(got) == len(want) and got[0] == want[0]
            for a, b in zip(got[1:], want[1:]):
                if isinstance(b, torch.Tensor):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
                else:
                    assert a == b
