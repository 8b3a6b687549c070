"""Results of several levels that come from one residual stream, as transformers show their hidden
states: each operator is gone back through once, and gradients are torch's, whichever results they come from."""

import random
import re
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_environment import start
from test_gradients import agree


def test_each_operator_is_gone_back_through_once():
    """Four layers, whose inputs are results; the stream between them is none."""
    out = start(textwrap.dedent("""
        import torch, dycl
        w = torch.randn(8, 8, requires_grad=True)
        def program(x):
            shown, stream = [], (x @ w).sin()
            for _ in range(4):
                shown.append(stream.tanh())
                stream = stream + shown[-1] @ w
            return shown, stream
        run = dycl.accelerate(program)
        shown, stream = run(torch.randn(5, 8))
        (stream.sum() + sum(s.sum() for s in shown)).backward()
        run(torch.randn(5, 8))  # what a backward pass logs is shown behind the next call
        """), DYCL_CHOOSE="0", DYCL_LOG="graph")
    forward, *backward = out.stderr.split("as recorded:")[1:]
    assert len(re.findall(r"= matmul\b", forward)) == 5
    tangents = sum(len(re.findall(r"= cos\b", graph)) for graph in backward)
    assert tangents == 1, out.stderr  # of the only sine, which all levels come from


def residual_program(seed):
    """Layers around a stream; some of what they add is shown, and some sums are looked at."""
    chance = random.Random(seed)
    layers = [(chance.randrange(6), chance.random() < 0.5, chance.random() < 0.15) for _ in range(chance.randint(2, 7))]

    def program(x, weights):
        shown, stream = [], x
        for i, (kind, is_shown, is_read) in enumerate(layers):
            w = weights[i % len(weights)]
            if kind == 0:
                part = F.layer_norm(stream, stream.shape[-1:]) @ w
            elif kind == 1:
                part = torch.tanh(stream @ w)
            elif kind == 2:
                part = (stream.t() * 0.5).t().sigmoid()
            elif kind == 3:
                part = stream[:, ::2].repeat(1, 2) * w[0]
            elif kind == 4:
                part = shown[-1] * 0.3 if shown else stream * 0.3
            else:
                part = stream.exp().clamp_max(3.0)
            if is_shown:
                shown.append(part)
            stream = stream + part
            if is_read:
                stream = stream * (1.0 if stream.sum() > 0 else 0.5)
        return shown, stream

    return program


@pytest.mark.parametrize("seed", range(60))
def test_random(seed):
    chance, program = random.Random(seed + 1000), residual_program(seed)
    run = dycl.accelerate(program)
    torch.manual_seed(seed)
    x, weights = torch.randn(4, 6), [torch.randn(6, 6) * 0.4 for _ in range(3)]
    asked = chance.choice(("sum", "some", "hooks", "grad", "twice", "double"))
    for _ in range(3):
        seen = []
        for function in (program, run):
            leaf = x.clone().requires_grad_()
            ws = [nn.Parameter(w.clone()) for w in weights]
            heard = []
            shown, stream = function(leaf, ws)
            results = [*shown, stream]
            if asked == "hooks":
                for r in results:
                    r.register_hook(lambda g: heard.append(g.clone()))
            if asked == "some":
                results = random.Random(seed).sample(results, (len(results) + 1) // 2)
            loss = sum((r * (i + 1)).sum() for i, r in enumerate(results))
            if asked == "grad":
                heard += torch.autograd.grad(loss, [leaf, *ws, *results[:-1]], allow_unused=True)
            elif asked == "double":
                first, = torch.autograd.grad(loss, [leaf], create_graph=True)
                first.square().sum().backward()
            else:
                loss.backward(retain_graph=asked == "twice")
                if asked == "twice":
                    loss.backward()
            seen.append([*heard, leaf.grad, *[w.grad for w in ws]])
        assert len(seen[0]) == len(seen[1])
        for want, got in zip(*seen):
            assert (want is None) == (got is None)
            assert want is None or agree(want, got), (want, got)
