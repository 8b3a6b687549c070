"""Weights of a direction and a length (weight norm) before what uses them: one segment with it, with eager's gradients
and gradients of gradients. The lengths that torch saves hand nothing on."""

import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl

USES = {  # rank of the weight, the operand's spatial sizes, use
    "conv1d": (3, 1, F.conv1d),
    "conv2d": (4, 2, F.conv2d),
    "conv_transpose1d": (3, 1, lambda x, w: F.conv_transpose1d(x, w.transpose(0, 1))),
    "linear": (2, 0, F.linear),
    "product": (2, 0, lambda x, w: torch.relu(x @ w.mT).exp()),
    "twice": (2, 0, lambda x, w: F.linear(x, w).tanh() + F.linear(x.sin(), w * 2)),
}


def drawn(r, rank, spatial):
    given, made, dim = r.randint(1, 5), r.randint(1, 6), r.choice([0, rank - 1, r.randrange(rank)])
    v = torch.randn(made, given, *[r.randint(1, 3) for _ in range(rank - 2)])
    if r.random() < 0.3:
        v = v.transpose(0, 1).contiguous().transpose(0, 1)
    g = torch.rand([n if i == dim else 1 for i, n in enumerate(v.shape)]) + 0.5
    return dim, [torch.randn(r.randint(1, 3), given, *[r.randint(3, 7) for _ in range(spatial)]), v, g]


def outcome(program, operands, twice):
    leaves = [t.detach().requires_grad_() for t in operands]
    result = program(*leaves)
    gradients = torch.autograd.grad(result.square().sum(), leaves, create_graph=twice)
    if twice:
        gradients += torch.autograd.grad(sum(t.sin().sum() for t in gradients), leaves)
    return [result.detach(), *(t.detach() for t in gradients)]


def same(want, got, what):
    for i, (a, b) in enumerate(zip(want, got, strict=True)):
        torch.testing.assert_close(b, a, rtol=2e-4, atol=2e-5 * (1 + a.abs().max().item()),
                                   msg=lambda m, i=i: f"{what}, {i}: {m}")
        assert a.stride() == b.stride(), (what, i)


@pytest.mark.parametrize("name", USES)
def test_before_its_use(name):
    rank, spatial, use = USES[name]
    for seed in range(12):
        r = random.Random(f"{name} {seed}")
        torch.manual_seed(seed)
        dim, operands = drawn(r, rank, spatial)
        before = r.random() < 0.5

        def program(x, v, g, dim=dim, before=before):
            w = torch._weight_norm(v * 1.5 if before else v, g, dim)
            return use(x, w)

        run, twice = dycl.accelerate(program), seed % 3 == 2
        want = outcome(program, operands, twice)
        for nth in range(3):
            same(want, outcome(run, operands, twice), f"{name}, seed {seed}, dim {dim}, run {nth}")
        stats = dycl.stats(run)
        assert stats["replays"] == 0, (name, seed, dycl.explain(run))
        assert twice or stats["backward_replays"] == 0, (name, seed, dycl.explain(run))


@pytest.mark.parametrize("old", [False, True])
def test_modules_train(old):
    """As wav2vec2's encoder of positions: convolutions whose weights are normed along the last dimension."""

    def network():
        torch.manual_seed(0)
        norm = nn.utils.weight_norm if old else nn.utils.parametrizations.weight_norm
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return nn.Sequential(norm(nn.Conv1d(4, 4, 4, padding=2, groups=2), dim=2), nn.GELU(),
                                 norm(nn.Conv1d(4, 3, 3)), nn.Flatten(), norm(nn.Linear(21, 2)))

    outcomes = []
    for accelerated in (False, True):
        model = network()
        run = dycl.accelerate(lambda x, model=model: model(x).square().mean()) if accelerated else None
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        torch.manual_seed(1)
        for _ in range(6):
            optimizer.zero_grad()
            x = torch.randn(2, 4, 8)
            loss = run(x) if accelerated else model(x).square().mean()
            loss.backward()
            optimizer.step()
        outcomes.append([loss.detach(), *(p.detach() for p in model.parameters())])
    same(*outcomes, f"old {old}")
    assert dycl.stats(run)["replays"] == dycl.stats(run)["backward_replays"] == 0, dycl.explain(run)
