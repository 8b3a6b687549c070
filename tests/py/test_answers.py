"""What operators answer otherwise in one version of torch than in another (csrc/py/torch/answers.h): the results look
as this torch's do."""

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
