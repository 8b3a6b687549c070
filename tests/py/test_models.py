"""Whole models, each at three batch sizes and in every state of its plans (new, tuned, again): results equal to eager,
and no operator left to torch."""

import copy

import dycl
import pytest
import torch
from tolerance import bounds
from torch import nn
from torch.utils._pytree import tree_flatten

torch.manual_seed(0)


def transformers_model(name, config, **settings):
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**settings)).eval().requires_grad_(False)


def tokens(vocabulary, length):
    return lambda batch: (torch.randint(0, vocabulary, (batch, length)),)


def image(size):
    return lambda batch: (torch.randn(batch, 3, size, size),)


def numbers(*shape):
    return lambda batch: (torch.randn(batch, *shape),)


class Cells(nn.Module):
    def __init__(self, size=32, layers=2):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(size, size) for _ in range(layers))

    def forward(self, x):
        states = [(torch.zeros(x.shape[1], x.shape[2]),) * 2 for _ in self.cells]
        out = []
        for step in x:
            for i, cell in enumerate(self.cells):
                states[i] = cell(step, states[i])
                step = states[i][0]
            out.append(step)
        return torch.stack(out), states


class Skipping(nn.Module):
    def __init__(self, width=16, blocks=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.gates = nn.ModuleList(nn.Linear(width, 1) for _ in range(blocks))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                          nn.Conv2d(width, width, 3, padding=1)) for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)
        self.path = []

    def forward(self, x):
        x = torch.relu(self.stem(x))
        self.path.append([])
        for gate, block in zip(self.gates, self.blocks):
            skip = bool(torch.sigmoid(gate(x.mean((2, 3)))).mean() < 0.5)
            self.path[-1].append(skip)
            if not skip:
                x = torch.relu(x + block(x))
        return self.head(x.mean((2, 3)))


class Statistics(nn.Module):
    def forward(self, x):
        y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        y = torch.tanh(y * 1.5 + 0.1) * torch.sigmoid(y)
        return y / y.abs().amax(-1, keepdim=True).clamp(min=1e-3), y.sum(-1)


def mlp():
    return nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))],
                         nn.Linear(64, 10))


TEXT = {"num_hidden_layers": 6, "hidden_size": 96, "num_attention_heads": 4, "intermediate_size": 192,
        "vocab_size": 200}
MODELS = {
    "resnet50": (lambda: transformers_model("ResNetModel", "ResNetConfig"), image(64)),
    "bert": (lambda: transformers_model("BertModel", "BertConfig", **TEXT), tokens(200, 17)),
    "gpt2": (lambda: transformers_model("GPT2Model", "GPT2Config", n_layer=6, n_embd=96, n_head=4, vocab_size=200),
             tokens(200, 17)),
    "vit": (
        lambda: transformers_model("ViTModel", "ViTConfig", num_hidden_layers=6, hidden_size=96, num_attention_heads=4,
                                   intermediate_size=192, image_size=32, patch_size=8),
        image(32),
    ),
    "mlp": (mlp, numbers(64)),
    "lstm cells": (Cells, lambda batch: (torch.randn(7, batch, 32),)),
    "skipnet": (Skipping, image(16)),
    "statistics": (Statistics, numbers(50)),
}
REAL_SIZE = {
    "resnet50": (MODELS["resnet50"][0], image(224)),
    "bert": (lambda: transformers_model("BertModel", "BertConfig", num_hidden_layers=6), tokens(30000, 128)),
    "gpt2": (lambda: transformers_model("GPT2Model", "GPT2Config", n_layer=6), tokens(50000, 32)),
    "vit": (lambda: transformers_model("ViTModel", "ViTConfig", num_hidden_layers=6), image(224)),
}


def compare(want, got, where):
    """Equal in structure, types, dtypes, sizes, strides and values. A network's rounding errors grow with the magnitude
    of what it adds up."""
    (want_leaves, want_tree), (got_leaves, got_tree) = tree_flatten(want), tree_flatten(got)
    assert type(want) is type(got) and want_tree == got_tree, (where, want_tree, got_tree)
    for a, b in zip(want_leaves, got_leaves):
        assert type(a) is type(b), (where, type(a), type(b))
        if isinstance(a, torch.Tensor):
            rtol, atol = bounds("matmul", a.dtype)
            scale = max(1.0, float(a.abs().max())) if a.numel() else 1.0
            assert a.stride() == b.stride() and a.dtype == b.dtype, (where, a.stride(), b.stride())
            torch.testing.assert_close(b, a, rtol=rtol, atol=atol * scale, msg=lambda m: f"{where}: {m}")


def check(make, inputs, batches, rounds):
    torch.manual_seed(1)
    plain = make().eval().requires_grad_(False)
    model = dycl.accelerate(copy.deepcopy(plain))
    given = {batch: inputs(batch) for batch in batches}
    with torch.no_grad():
        wanted = {batch: plain(*given[batch]) for batch in batches}
        for i in range(rounds):
            if i == rounds - 1:
                steady = dycl.stats(model)["torch"]
            for batch in batches:
                compare(wanted[batch], model(*given[batch]), f"batch {batch}, round {i}")
    stats = dycl.stats(model)
    assert stats["recorded"] > 0 and stats["plain_grad"] == stats["plain_mode"] == 0, stats
    assert stats["torch"] == steady, (stats["bails"], dycl.explain(model)[-2000:])


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    check(*MODELS[name], batches=(1, 3, 4), rounds=4)


@pytest.mark.parametrize("name", REAL_SIZE)
def test_model_of_real_size(name):
    check(*REAL_SIZE[name], batches=(1,), rounds=3)


def test_branches_that_change_from_call_to_call():
    torch.manual_seed(2)
    plain = Skipping().eval().requires_grad_(False)
    model = dycl.accelerate(copy.deepcopy(plain))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for i in range(40):
            x = torch.randn(1 + i % 2, 3, 16, 16, generator=generator) * (1 + i % 5) + (i % 7 - 3)
            compare(plain(x), model(x), f"call {i}")
    assert model.path == plain.path and len({tuple(p) for p in plain.path}) >= 4, "the inputs take too few paths"
    assert dycl.stats(model)["case_selects"] > 0
