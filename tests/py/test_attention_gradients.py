"""Attention in training, drawn at random: heads that share keys and values (Llama's), masks of every kind, layouts,
widths and dimensions, alone and between recorded operators. Compared with torch are results and gradients, also what
flows through what is no leaf, with their strides; and that what torch's flash kernel goes back through is recorded."""

import random

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import FULL, one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

HEADS = ((4, 2), (4, 1), (6, 3), (8, 2), (4, 4), (1, 1))
MASKS = {
    "none": lambda b, h, m, n: None, "causal": lambda b, h, m, n: None,
    "rows": lambda b, h, m, n: torch.rand(m, n) > 0.3, "one for all": lambda b, h, m, n: torch.rand(1, 1, 1, n) > 0.3,
    "each": lambda b, h, m, n: torch.rand(b, h, m, n) > 0.3, "added": lambda b, h, m, n: torch.randn(b, 1, m, n),
    "added to each": lambda b, h, m, n: torch.randn(b, h, m, n),
    "of parts": lambda b, h, m, n: torch.rand(b, 2 * h, m, n)[:, ::2] > 0.3,
}
LAYOUTS = {
    "heads first": lambda t: t, "rows first": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "parts": lambda t: torch.cat([t, t], -1)[..., :t.shape[-1]], "turned": lambda t: t.mT.contiguous().mT,
}
AROUND = {
    "alone": lambda t: t, "between": lambda t: t * 1.5,
    "as in models": lambda t: (t.transpose(-3, -2) + 0).transpose(-3, -2),
}


def drawn(seed):
    """(program, leaves, whether torch takes its flash kernel)."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    heads, shared = rng.choice(HEADS)
    batch, rows, keys, width = rng.randint(1, 3), rng.choice((1, 5, 16)), rng.choice((2, 7, 16)), rng.choice((1, 8, 12))
    mask, layout, around = rng.choice(sorted(MASKS)), rng.choice(sorted(LAYOUTS)), rng.choice(sorted(AROUND))
    wide = width + 4 * (rng.random() < 0.1)
    given = MASKS[mask](batch, heads, rows, keys)
    if given is not None and given.dtype == torch.bool:
        given = given | (torch.arange(keys) == 0)  # no row is empty
    leaves = [LAYOUTS[layout](torch.randn(batch, h, n, w)).detach().requires_grad_(rng.random() < 0.9)
              for h, n, w in ((heads, rows, width), (shared, keys, width), (shared, keys, wide))]
    options = {"attn_mask": given, "is_causal": mask == "causal", "enable_gqa": True}
    flat = heads == shared > 1 and batch == 1 and rng.random() < 0.3  # three dimensions
    if flat:
        leaves = [t.detach()[0].requires_grad_() for t in leaves]
        options.update(attn_mask=given[0] if given is not None and given.dim() == 4 else given, enable_gqa=False)
    if rng.random() < 0.3:
        options["scale"] = 0.3

    def program(q, k, v):
        before = [AROUND[around](t) for t in (q, k, v)]
        return F.scaled_dot_product_attention(*before, **options).transpose(-3, -2).flatten(-2).tanh(), before

    return program, leaves, not flat and wide == width and all(t.stride(-1) == 1 for t in leaves) and layout != "turned"


def outcome(program, leaves):
    result, before = program(*leaves)
    torch.manual_seed(0)
    wanted = [t for t in (*leaves, *before) if t.requires_grad]
    return [result, *(torch.autograd.grad(result, wanted, torch.randn_like(result), allow_unused=True)
                      if result.requires_grad else ())]


@pytest.mark.parametrize("seed", range(400 if FULL else 80))
def test_gradients(seed):
    program, leaves, flash = drawn(seed)
    want = outcome(program, leaves)
    run = dycl.accelerate(program)
    for _ in range(3):
        for a, b in zip(want, outcome(run, leaves), strict=True):
            assert agree(a, b)
            assert a.stride() == b.stride()
    stats = dycl.stats(run)
    if flash:
        assert stats["torch"] == 0 and stats["replays"] == 0, dycl.explain(run)
