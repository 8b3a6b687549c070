"""Whole training steps that were accelerated as functions: model, loss, backward pass, clipping and optimizer in one
region, with parameters of every kind, against eager."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dycl


class Mixed(nn.Module):
    """Parameters of kinds that are recorded, and of one that may not be."""

    def __init__(self, kind):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        dtype = {"complex": torch.cfloat, "double": torch.float64, "half": torch.bfloat16}.get(kind, torch.float32)
        self.factor = nn.Parameter(torch.ones(8, dtype=dtype))
        self.table = nn.Embedding(10, 8, sparse=kind == "sparse")

    def forward(self, x, index):
        h = torch.tanh(self.first(x)) + self.table(index)
        return self.last((h * self.factor).abs().float())


def optimizers(kind, model):
    if kind != "sparse":
        return [torch.optim.Adam(model.parameters(), lr=0.01)]
    rest = [p for name, p in model.named_parameters() if not name.startswith("table")]
    return [torch.optim.SparseAdam(model.table.parameters(), lr=0.01), torch.optim.Adam(rest, lr=0.01)]


def trained(kind, set_to_none, accelerated, steps=8):
    torch.manual_seed(0)
    model = Mixed(kind)
    made, held = optimizers(kind, model), []

    def step(x, index, y):
        before = model.first.weight.grad
        for optimizer in made:
            optimizer.zero_grad(set_to_none=set_to_none)
        held.append(before is None or before is model.first.weight.grad)
        loss = F.cross_entropy(model(x, index), y)
        loss.backward()
        held.append(model.first.bias.grad.sum().item())
        for optimizer in made:
            optimizer.step()
        return loss.item()

    call = dycl.accelerate(step) if accelerated else step
    generator = torch.Generator().manual_seed(1)
    losses = [call(torch.randn(5, 6, generator=generator), torch.randint(10, (5,), generator=generator),
                   torch.randint(3, (5,), generator=generator)) for _ in range(steps)]
    return losses, held, [p.detach() for p in model.parameters()], call


@pytest.mark.parametrize("kind", ["", "double", "complex", "sparse", "half"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_parameters_of_every_kind(kind, set_to_none):
    eager, ours = (trained(kind, set_to_none, accelerated) for accelerated in (False, True))
    torch.testing.assert_close(torch.tensor(ours[0]), torch.tensor(eager[0]), rtol=1e-4, atol=1e-5)
    assert [h for h in ours[1] if isinstance(h, bool)] == [h for h in eager[1] if isinstance(h, bool)]
    for o, e in zip(ours[2], eager[2]):
        torch.testing.assert_close(o, e, rtol=1e-3, atol=1e-3 if kind == "half" else 1e-4)


@pytest.mark.parametrize("kind", ["complex", "sparse"])
def test_a_step_that_is_not_recorded_ends_no_segments(kind):
    """Operator by operator, each parameter ended two or more."""
    call = trained(kind, True, True, steps=20)[3]
    stats = dycl.stats(call)
    assert stats["calls"] and stats["segments"] <= 7 * stats["calls"]


def test_gradients_that_are_read_before_they_go():
    """What the program computes from gradients is theirs, whatever happens to them later in the step."""
    seen = []
    for accelerated in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            model(x).square().sum().backward()
            with torch.no_grad():
                size = (model.weight.grad * 2).sum() + model.bias.grad.exp().sum()
            optimizer.step()
            optimizer.zero_grad()
            return size

        call = dycl.accelerate(step) if accelerated else step
        seen.append([call(torch.ones(2, 4) * k).item() for k in range(6)])
        assert all(p.grad is None for p in model.parameters())
    assert seen[1] == pytest.approx(seen[0], rel=1e-5)
