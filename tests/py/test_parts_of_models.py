"""Parts of an accelerated model that are called outside of its forward (csrc/py/entry/everywhere.h): by methods of its
own, by the program, by a trainer. Equal to eager, and recorded."""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dycl
from dycl import _core


class Coder(nn.Module):
    """A VAE as many are written: used by its methods."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 6))
        self.alone = nn.Linear(4, 4)

    def encode(self, x):
        return self.encoder(x).chunk(2, -1)

    def decode(self, z):
        return self.decoder(self.alone(z))

    def loss(self, x):
        mean, log = self.encode(x)
        z = mean + torch.randn_like(mean) * (log / 2).exp()
        return F.mse_loss(self.decode(z), x) - 0.5 * (1 + log - mean.square() - log.exp()).mean()

    def forward(self, x):
        return self.decode(self.encode(x)[0])


def coder():
    torch.manual_seed(0)
    return Coder()


def calls(module):
    return dycl.stats(module)["calls"]


X = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))


def trained(model, steps=8):
    torch.manual_seed(3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(X)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in model.parameters()]


def test_training_by_methods():
    model = dycl.accelerate(coder())
    eager, ours = trained(coder()), trained(model)
    assert ours[0] == pytest.approx(eager[0], rel=1e-5)
    for o, e in zip(ours[1], eager[1]):
        torch.testing.assert_close(o, e, rtol=1e-3, atol=1e-5)
    assert calls(model.encoder) >= 1 and calls(model.decoder) >= 1
    assert dycl.stats(model.encoder)["nodes"] and dycl.stats(model.decoder)["recorded"]
    assert dycl.stats(model)["calls"] == 0


def test_what_is_said_of_parts():
    model = dycl.accelerate(coder())
    with torch.no_grad():
        model(X)
        assert "outside of a call" not in dycl.explain(model)
        for _ in range(3):
            model.decode(model.encode(X)[0])
    text = dycl.explain(model)
    assert "  decoder: 3 calls recorded, 0 ran in torch as a whole\n  encoder: 3 calls" in text
    assert "operators recorded" in dycl.explain(model.encoder) and "outside" not in dycl.explain(model.encoder)


def test_one_operator_is_no_region():
    model = dycl.accelerate(coder())
    with torch.no_grad():
        model.alone(torch.ones(2, 4))
    with pytest.raises(TypeError, match="not accelerated"):
        dycl.stats(model.alone)


def test_within_its_model_a_part_is_no_region():
    model = dycl.accelerate(coder()).eval()
    with torch.no_grad():
        for _ in range(3):
            model(X)
    assert calls(model) == 3
    with pytest.raises(TypeError, match="not accelerated"):
        dycl.stats(model.encoder)


def test_modules_of_others_are_torchs():
    model, other = dycl.accelerate(coder()), coder()
    with torch.no_grad():
        other.encoder(X), model.encoder(X)
        assert calls(model.encoder) == 1
        with pytest.raises(TypeError, match="not accelerated"):
            dycl.stats(other.encoder)
        dycl.accelerate(other)  # what was no part before is one now
        other.encoder(X)
    assert calls(other.encoder) == 1


def test_options_are_the_models():
    model = dycl.accelerate(coder(), pack=False)
    with torch.no_grad():
        model.encoder(X)
    assert calls(model.encoder) == 1 and _core.site_of(model.encoder)._options == _core.NO_PACK
    model.encoder(X)  # with gradients: torch's, as calls of the model
    assert dycl.stats(model.encoder)["plain_grad"] == 1


def test_a_model_that_runs_in_torch_runs_so_as_a_whole():
    model = dycl.accelerate(coder(), pack=False)
    model(X)
    assert dycl.stats(model)["plain_grad"] == 1
    with pytest.raises(TypeError, match="not accelerated"):
        dycl.stats(model.encoder)


def test_copies_are_plain_and_looks_stay():
    model = dycl.accelerate(coder())
    names = list(vars(model.encoder))
    with torch.no_grad():
        want = model.encoder(X)
        assert list(vars(model.encoder)) == names and nn.Module._compiled_call_impl is None
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(model.encoder)):
            part = getattr(other, "encoder", other)
            torch.testing.assert_close(part(X), want)
            with pytest.raises(TypeError, match="not accelerated"):
                dycl.stats(part)


def test_a_part_that_comes_and_one_that_goes():
    model = dycl.accelerate(coder())
    with torch.no_grad():
        model.encoder(X)
        model.encoder = nn.Sequential(nn.Linear(6, 3), nn.Tanh())
        gc.collect()
        want = torch.tanh(model.encoder[0](X))
        torch.testing.assert_close(model.encoder(X), want)


@pytest.mark.parametrize("reentrant", [False, True])
def test_parts_that_are_checkpointed(reentrant):
    """They are called again within the backward pass."""

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Dropout(0.2)) for _ in range(3))

        def features(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return x

    seen = []
    for accelerated in (False, True):
        torch.manual_seed(0)
        model = Deep()
        if accelerated:
            dycl.accelerate(model)
        x = X.clone().requires_grad_()
        for _ in range(4):
            loss = model.features(x).square().sum()
            loss.backward()
        seen.append([loss.item(), x.grad, *(p.grad for p in model.parameters())])
    assert seen[1][0] == pytest.approx(seen[0][0], rel=1e-5)
    for o, e in zip(seen[1][1:], seen[0][1:]):
        torch.testing.assert_close(o, e, rtol=1e-4, atol=1e-5)


def test_hooks_and_functional_calls():
    seen = []
    for accelerated in (False, True):
        model, log = coder(), []
        if accelerated:
            dycl.accelerate(model)
        model.encoder.register_forward_pre_hook(lambda m, args, log=log: log.append(args[0].sum().item()))
        model.encoder[0].register_forward_hook(lambda m, args, out, log=log: log.append(out.sum().item()))
        model.encoder.register_full_backward_hook(lambda m, gi, go, log=log: log.append(go[0].sum().item()))
        for _ in range(3):
            model.encoder(X.clone().requires_grad_()).square().sum().backward()
        doubled = {name: 2 * p for name, p in model.encoder.named_parameters()}
        log.append(torch.func.functional_call(model.encoder, doubled, (X,)).sum().item())
        log.append(torch.func.vmap(model.encoder[2])(torch.ones(3, 2, 16)).sum().item())
        seen.append(log)
    assert seen[1] == pytest.approx(seen[0], rel=1e-4, abs=1e-5)
