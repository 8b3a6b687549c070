"""Losses that a program computes behind the end of an accelerated model: regions of their own (csrc/py/entry/loss.c),
against eager: values, gradients, nodes, second gradients, errors."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from dycl import _core
from samples import op_db
from suite import one_thread  # noqa: F401 (a fixture)

CLOSE = dict(rtol=2e-5, atol=2e-6)  # sums of up to 80,000 elements, whose parts are added in another order


class Model(nn.Module):
    """x, shifted and scaled by parameters, and what a loss wants of it."""

    def __init__(self, last):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.tensor(0.1))
        self.last = last

    def forward(self, x):
        return self.last(torch.tanh(x * self.scale + self.shift) + x * 0.5)


def plain(x):
    return x


def signs(shape):
    return torch.randint(0, 2, shape) * 2.0 - 1


def of_shape(f, last=plain, target=torch.rand):
    return last, lambda rnd, n, c: ((n, c), f, target((n, c)))


def of_rows(f, target=lambda n, c: torch.randint(0, c, (n,)), last=plain):
    return last, lambda rnd, n, c: ((n, c), f, target(n, c))


def against(f, target=torch.rand):
    """With a second operand of x's look, which the model did not give."""
    def make(rnd, n, c):
        other = torch.randn(n, c)
        return (n, c), lambda out, y: f(out, other, y), target((n,))
    return plain, make


CASES = {
    "binary_cross_entropy": of_shape(F.binary_cross_entropy, torch.sigmoid),
    "weighted": of_shape(lambda o, y: F.binary_cross_entropy(o, y, y + 1, reduction="sum"), torch.sigmoid),
    "with_logits": of_shape(lambda o, y: F.binary_cross_entropy_with_logits(o, y, pos_weight=y[0] + 1)),
    "of_each": of_shape(lambda o, y: F.binary_cross_entropy_with_logits(o, y, reduction="none").mean(1).max()),
    "soft_margin_loss": of_shape(F.soft_margin_loss, target=signs),
    "huber_loss": of_shape(lambda o, y: F.huber_loss(o, y, delta=0.3)),
    "smooth_l1_loss": of_shape(lambda o, y: F.smooth_l1_loss(o, y, reduction="sum")),
    "cross_entropy": of_rows(F.cross_entropy),
    "smoothing": of_rows(lambda o, y: F.cross_entropy(o, y, label_smoothing=0.1)),
    "ignored": of_rows(lambda o, y: F.cross_entropy(o, y, ignore_index=1, label_smoothing=0.2)),
    "classes": of_rows(lambda o, y: F.cross_entropy(o, y, weight=torch.linspace(1, 2, o.shape[1]))),
    "module": of_rows(nn.CrossEntropyLoss(label_smoothing=0.05, reduction="sum")),
    "view": of_rows(lambda o, y: F.cross_entropy(o.view(2, -1, o.shape[1]).transpose(1, 2), y.view(2, -1))),
    "probabilities": of_rows(F.cross_entropy, lambda n, c: torch.softmax(torch.randn(n, c), 1)),
    "kl_div": of_rows(lambda o, y: F.kl_div(o, y, reduction="sum"),
                      lambda n, c: torch.softmax(torch.randn(n, c), 1), lambda x: x.log_softmax(1)),
    "poisson_nll_loss": of_shape(F.poisson_nll_loss),
    "hinge_embedding_loss": of_shape(F.hinge_embedding_loss, target=signs),
    "margin_ranking_loss": of_rows(lambda o, y: F.margin_ranking_loss(o[:, 0], o[:, 1], y), lambda n, c: signs((n,))),
    "cosine_embedding_loss": against(F.cosine_embedding_loss, signs),
    "triplet_margin_loss": against(lambda o, other, _: F.triplet_margin_loss(o, other, other.flip(0))),
    "second": against(lambda o, other, _: F.triplet_margin_loss(other, o, other.flip(0))),
    "cosine_similarity": against(lambda o, other, y: (F.cosine_similarity(o, other) * y).sum()),
    "pairwise_distance": against(lambda o, other, y: (F.pairwise_distance(o, other) * y).sum()),
}
SIZES = {"small": (6, 5), "large": (160, 500)}


def is_ours(tensor):
    return vars(type(tensor.grad_fn)).get("apply") is _core.node_apply


def both(last):
    return Model(last), dycl.accelerate(Model(last))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, size):
    """Over several calls, as plans change; the last one with a graph of the gradients."""
    last, make = CASES[name]
    eager, ours = both(last)
    rnd, seen = random.Random(size), set()
    torch.manual_seed(5)
    for k in range(5):
        shape, loss, target = make(rnd, *SIZES[size])
        x = torch.randn(shape)
        results = []
        for model in eager, ours:
            value = loss(model(x), target)
            parameters = list(model.parameters())
            found = torch.autograd.grad(value, parameters, create_graph=k == 4)
            if k == 4:
                found += torch.autograd.grad(sum(g.sum() for g in found), parameters)
            results.append((value, type(value.grad_fn).__name__, value.requires_grad, *found))
        (theirs, node, *rest), (value, own, *others) = results
        assert own == node and not is_ours(theirs)
        if k:  # torch shows in a first call what a result looks like
            seen.add(is_ours(value))
        assert type(value) is torch.Tensor and value.shape == theirs.shape
        for a, b in zip((theirs, *rest), (value, *others)):
            torch.testing.assert_close(b, a, **CLOSE) if isinstance(a, torch.Tensor) else None
    shows_another = name in ("of_each", "cosine_similarity", "pairwise_distance")
    assert size == "small" or shows_another or seen == {True}


def test_which_losses_are_recorded():
    """Of models that are accelerated; large ones; where gradients are enabled and somebody trains."""
    eager, ours = both(torch.sigmoid)
    x, y = torch.randn(40, 50), torch.rand(40, 50)
    for look in plain, lambda x: x.view(50, 40).t()[:30]:
        F.binary_cross_entropy(look(ours(x)), look(y))
        assert is_ours(F.binary_cross_entropy(look(ours(x)), look(y)))
    assert not is_ours(F.binary_cross_entropy(eager(x), y))
    assert not is_ours(F.binary_cross_entropy(ours(x)[:2], y[:2]))
    assert not is_ours(F.binary_cross_entropy(ours(x).detach().requires_grad_(), y))
    with torch.no_grad():
        assert F.binary_cross_entropy(ours(x), y).grad_fn is None
    with dycl.disable():
        assert not is_ours(F.binary_cross_entropy(ours(x), y))
    with torch.autograd.graph.save_on_cpu():
        assert not is_ours(F.binary_cross_entropy(ours(x), y))
    function = dycl.accelerate(lambda x, y: F.binary_cross_entropy(ours(x), y))  # of which it is a part
    torch.testing.assert_close(function(x, y), F.binary_cross_entropy(eager(x), y), **CLOSE)


def test_what_ran_is_told():
    _, ours = both(plain)
    y = torch.randint(0, 500, (160,))
    before = None
    for _ in range(4):
        F.cross_entropy(ours(torch.randn(160, 500)), y).backward()
        before = before or dycl.stats(F.cross_entropy)["calls"]
    assert dycl.stats(F.cross_entropy)["calls"] == dycl.stats(torch._C._nn.cross_entropy_loss)["calls"] == before + 3
    assert "log_softmax" in dycl.explain(F.cross_entropy)
    assert dycl.stats() == dycl.stats(ours)  # the model is what was called last
    for other in F.relu, F.dropout, torch.add, plain:
        with pytest.raises(TypeError):
            dycl.stats(other)


def test_errors_are_torchs():
    eager, ours = both(torch.sigmoid)
    x, rows = torch.randn(40, 50), torch.full((40,), 50)
    for loss in (lambda o: F.binary_cross_entropy(o * 2, o.detach()), lambda o: F.binary_cross_entropy(o, o[0]),
                 lambda o: F.cross_entropy(o, rows, label_smoothing=0.1),
                 lambda o: F.poisson_nll_loss(o, o, reduction="other"),
                 lambda o: F.triplet_margin_loss(o, o, o, margin=-1.0)):
        said = []
        for model in eager, ours:
            with pytest.raises((RuntimeError, IndexError, ValueError)) as e:
                loss(model(x))
            said.append((e.type, str(e.value)))
        assert said[0] == said[1]


def test_hooks_and_what_was_written_since():
    eager, ours = both(torch.sigmoid)
    x, y = torch.randn(40, 50), torch.rand(40, 50)
    said = []
    for model in eager, ours:
        seen, out = [], model(x)
        out.register_hook(lambda g: seen.append(g.sum().item()))
        out.retain_grad()
        loss = F.binary_cross_entropy(out, y)
        loss.register_hook(lambda g: g * 2)
        loss.backward()
        assert len(seen) == 1
        torch.testing.assert_close(out.grad.sum().item(), seen[0])
        out = model(x)
        loss = F.binary_cross_entropy(out, y)
        with torch.no_grad():
            out.mul_(0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as e:
            loss.backward()
        said.append((seen, model.scale.grad.clone(), str(e.value).split(": ")[1:]))
    torch.testing.assert_close(said[0][:2], said[1][:2], **CLOSE)


def test_what_is_not_represented_is_not_tried_again_soon():
    """Operands that dycl leaves to torch cost a region four times, then 16 calls nothing, and so on."""
    _, ours = both(torch.sigmoid)
    x, y = torch.randn(40, 50), torch.rand(40, 50)
    shown = []
    for _ in range(40):
        out = ours(x)
        shown.append(is_ours(F.binary_cross_entropy(out, y.clone().requires_grad_())))
    assert not any(shown)
    calls = [is_ours(F.binary_cross_entropy(ours(x), y)) for _ in range(40)]
    assert not calls[0] and calls[-1]


def test_a_training_program():
    """A variational autoencoder: its loss has two parts, of three results."""
    def model():
        torch.manual_seed(3)
        made = nn.ModuleDict({"enc": nn.Linear(30, 16), "mu": nn.Linear(16, 4), "logvar": nn.Linear(16, 4),
                              "dec": nn.Linear(4, 30)})
        made.forward = None

        class Vae(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = made

            def forward(self, x, noise):
                h = torch.relu(made["enc"](x))
                mu, logvar = made["mu"](h), made["logvar"](h)
                return torch.sigmoid(made["dec"](mu + noise * torch.exp(0.5 * logvar))), mu, logvar
        return Vae()

    losses = []
    for accelerated in (False, True):
        vae = model()
        if accelerated:
            dycl.accelerate(vae)
        optimizer = torch.optim.Adam(vae.parameters(), lr=1e-2)
        torch.manual_seed(4)
        values = []
        for _ in range(30):
            x, noise = torch.rand(32, 30), torch.randn(32, 4)
            optimizer.zero_grad()
            out, mu, logvar = vae(x, noise)
            kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
            loss = F.binary_cross_entropy(out, x, reduction="sum") + kl
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        losses.append(values)
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-4, atol=0.0)


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x):
        return x * self.scale


LOSSES = ["nn.functional." + name for name in (
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss", "huber_loss", "smooth_l1_loss",
    "cross_entropy", "kl_div", "poisson_nll_loss", "cosine_embedding_loss", "hinge_embedding_loss",
    "margin_ranking_loss", "triplet_margin_loss", "cosine_similarity", "pairwise_distance")]


@pytest.mark.parametrize("op", [op for op in op_db if op.name in LOSSES], ids=lambda op: op.name.split(".")[-1])
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_torchs_samples(op, dtype):
    """Each with options, sizes, weights and targets that nobody picked here."""
    # gradients of the scale are sums of some hundred products of either sign
    bounds = dict(rtol=1e-5, atol=1e-5) if dtype == torch.float32 else dict(rtol=1e-11, atol=1e-12)
    eager, ours = Scaled(1.0).to(dtype), dycl.accelerate(Scaled(1.0).to(dtype))
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        x = sample.input.detach().requires_grad_()
        for _ in range(2):
            outcomes = []
            for model in eager, ours:
                try:
                    value = op.op(model(x), *sample.args, **sample.kwargs)
                    outcomes.append((value, *torch.autograd.grad(value.sum(), (x, model.scale))))
                except (RuntimeError, ValueError, IndexError) as e:
                    outcomes.append((type(e), str(e)))
            theirs, mine = outcomes
            assert len(theirs) == len(mine)
            for a, b in zip(theirs, mine):
                if isinstance(a, torch.Tensor):
                    assert a.stride() == b.stride()
                    torch.testing.assert_close(b, a, equal_nan=True, **bounds)
                else:
                    assert a == b
