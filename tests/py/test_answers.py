"""What operators answer otherwise in one version of torch than in another (csrc/py/torch/answers.h): the results look
as this torch's do."""

import random

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import RUNS, one_thread  # noqa: F401 (a fixture)


def drawn(*sizes, learns):
    return torch.randn(sizes, requires_grad=learns)


def layers(learns):
    for lead in ((), (2,), (2, 3), (2, 1, 3)):
        yield F.linear, (drawn(*lead, 5, learns=learns), drawn(4, 5, learns=learns), drawn(4, learns=learns))
        yield torch.nn.Linear(5, 4).requires_grad_(learns), (drawn(*lead, 5, learns=False),)
        yield F.linear, (drawn(*lead, 5, learns=learns), drawn(4, 5, learns=learns))


def attentions(learns):
    for lead in ((), (2,), (1,), (2, 2)):
        q, k, v = (drawn(*lead, 3, 8, learns=learns) for _ in range(3))
        for options in ({}, {"is_causal": True}, {"attn_mask": torch.zeros(3, 3)}, {"dropout_p": 0.5},
                        {"attn_mask": torch.full((3, 3), float("-inf"))}):
            yield lambda q, k, v, options=options: F.scaled_dot_product_attention(q, k, v, **options), (q, k, v)


def seen(call, operands, inference):
    torch.manual_seed(0)
    with torch.inference_mode(inference):
        result = call(*operands)
        base = result._base
        return [result._is_view(), None if inference else result._version, result.stride(), result.requires_grad,
                type(result.grad_fn).__name__, base is None], result.detach().clone()


@pytest.mark.parametrize("mode", ["learns", "plain", "inference"])
@pytest.mark.parametrize("calls", [layers, attentions])
def test_results_look_as_this_torchs(calls, mode):
    for call, operands in calls(mode == "learns"):
        run = dycl.accelerate(call if not isinstance(call, torch.nn.Module) else lambda x, m=call: m(x))
        for _ in range(RUNS):
            want, got = seen(call, operands, mode == "inference"), seen(run, operands, mode == "inference")
            assert want[0] == got[0] and torch.allclose(want[1], got[1], rtol=1e-4, atol=1e-5, equal_nan=True)


def at_bounds(drawn, count):
    """Numbers of which many are equal, and some are none."""
    return torch.tensor([drawn.choice([-1.0, 0.0, 0.5, 1.0, 2.0, float("nan")]) for _ in range(count)])


BOUNDED = {
    "clamp numbers": (lambda x, y, z: x.clamp(0.0, 1.0), 1),
    "clamp a number": (lambda x, y, z: x.clamp(min=0.5) + x.clamp(max=1.0), 1),
    "clamp_min tensor": (lambda x, y, z: torch.clamp_min(x, y), 2),
    "clamp_max tensor": (lambda x, y, z: torch.clamp_max(x, y), 2),
    "clamp tensors": (torch.clamp, 3),
    "clamp max tensor": (lambda x, y, z: torch.clamp(x, max=y), 2),
    "fmax": (lambda x, y, z: torch.fmax(x, y), 2),
    "fmin": (lambda x, y, z: torch.fmin(x, y), 2),
    "maximum": (lambda x, y, z: torch.maximum(x, y), 2),
    "minimum": (lambda x, y, z: torch.minimum(x, y), 2),
    "margin loss": (lambda x, y, z: F.margin_ranking_loss(x, y, torch.ones(300), reduction="none"), 2),
    "hinge loss": (lambda x, y, z: F.hinge_embedding_loss(x, -torch.ones(300), reduction="none"), 1),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_gradients_where_there_is_none(name):
    """At bounds, of equal operands and of NaN, torch decides, and not every version alike."""
    function, learns = BOUNDED[name]
    run = dycl.accelerate(lambda *v: function(*v) * 3)
    for seed in range(2 * RUNS):
        drawn = random.Random(seed)
        values = [at_bounds(drawn, 300) for _ in range(3)]
        grads = []
        for call in (lambda *v: function(*v) * 3, run):
            given = [v.clone().requires_grad_(i < learns) for i, v in enumerate(values)]
            call(*given).sum().backward()
            grads.append([v.grad for v in given[:learns]])
        for k, (want, got) in enumerate(zip(*grads)):
            apart = ~((want == got) | (want.isnan() & got.isnan()))
            assert not apart.any(), (k, [v[apart][:4] for v in values], want[apart][:4], got[apart][:4])
