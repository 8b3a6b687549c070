"""Whose memory a gradient is: two leaves that meet in a sum may get the same tensor, views of one, or tensors of their
own, and who adds to a gradient, clips or scales it in place sees which. Pairs of functions that change nothing or only
the look: sharing of memory with each other and with the gradient that came, values after they were added up twice, and
strides are torch's."""

import random

import dycl
import pytest
import torch
import torch.nn.functional as F


def put(whole, key, x):
    whole[key] = x
    return whole


OPS = {
    "id": lambda a: a, "view": lambda a: a.view(-1), "t": lambda a: a.t(), "permute": lambda a: a.permute(1, 0),
    "unsqueeze": lambda a: a.unsqueeze(0), "squeeze": lambda a: a.squeeze(),
    "squeeze one": lambda a: a[None].squeeze(0), "slice": lambda a: a[:], "slice of a size": lambda a: a[:4],
    "step": lambda a: a[::1], "dots": lambda a: a[...], "tuple": lambda a: a[:, :4], "none": lambda a: a[None],
    "number": lambda a: a[None][0], "expand": lambda a: a.expand(4, 4), "expand more": lambda a: a.expand(1, 4, 4),
    "chunk": lambda a: a.chunk(1)[0], "narrow": lambda a: a.narrow(0, 0, 4), "split": lambda a: a.split(4, 1)[0],
    "unbind": lambda a: a[None].unbind(0)[0], "select": lambda a: a[None].select(0, 0),
    "iterate": lambda a: next(iter(a[None])), "clone": lambda a: a.clone(), "contiguous": lambda a: a.contiguous(),
    "to": lambda a: a.to(torch.float32), "view_as": lambda a: a.view_as(a),
    "unflatten": lambda a: a.unflatten(0, (2, 2)), "movedim": lambda a: a.movedim(0, 1), "mT": lambda a: a.mT,
    "unfold": lambda a: a.unfold(0, 4, 4), "as_strided": lambda a: a.as_strided((4, 4), (4, 1)),
    "power": lambda a: a**1, "add": lambda a: a + 0.0, "pad": lambda a: F.pad(a, (0, 0)),
    "sum": lambda a: a[None].sum(0), "mean": lambda a: a[None].mean(0), "cumsum": lambda a: a[None].cumsum(0),
    "repeat": lambda a: a.repeat(1, 1), "tile": lambda a: a.tile(1, 1), "cat": lambda a: torch.cat([a]),
    "stack": lambda a: torch.stack([a]), "roll": lambda a: a.roll(0, 0),
    "broadcast_to": lambda a: a.broadcast_to(4, 4), "then": lambda a: a.view(4, 4)[:],
    "tensor_split": lambda a: a.tensor_split(1)[0], "einsum": lambda a: torch.einsum("ij->ij", a),
    "assign": lambda a: put(torch.zeros(4, 4), slice(None), a), "row": lambda a: put(torch.zeros(2, 4, 4), 0, a)[0],
    "tril": lambda a: a.tril(9), "gather": lambda a: a[torch.arange(4)],
    "identity": lambda a: F.dropout(a, 0.5, False),
}  # fmt: skip


def span(x):
    reach = sum((n - 1) * step for n, step in zip(x.shape, x.stride())) + 1
    return x.data_ptr(), x.data_ptr() + reach * x.element_size()


def share(x, y):
    (a, b), (c, d) = span(x), span(y)
    return a < d and c < b


def joined(names, a, b):
    x, y = OPS[names[0]](a), OPS[names[1]](b)
    return x + y.reshape(x.shape) if x.shape != y.shape else x + y


def added_up(make, a, b):
    for _ in range(2):
        (make(a, b) ** 2).sum().backward()
    return a.grad, b.grad


def given(make, a, b):
    y = make(a, b)
    came = torch.randn(y.shape)
    y.backward(came)
    return a.grad, b.grad, came


def asked(make, a, b):
    y = make(a, b)
    came = torch.randn(y.shape)
    return *torch.autograd.grad(y, (a, b), came), came


def step(make, a, b):
    make(a, b)
    return a.grad, b.grad


# torch's gradients lie in one memory here, ours do not
KNOWN = {("stack", "stack"): ("added up",), ("gather", "unsqueeze"): ("given",)}

FORMS = {"added up": added_up, "given": given, "asked": asked, "a step": step}


def outcome(form, names, accelerated):
    torch.manual_seed(0)
    a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def make(a, b):
        if form != "a step":
            return joined(names, a, b)
        for _ in range(2):
            (joined(names, a, b) ** 2).sum().backward()
        return None

    made = FORMS[form](dycl.accelerate(make) if accelerated else make, a, b)
    ones = [share(x, y) for i, x in enumerate(made) for y in made[:i]]
    return ones, [x.stride() for x in made], [x.tolist() for x in made]


def close(want, got):
    return want[:2] == got[:2] and torch.allclose(torch.tensor(want[2][0]), torch.tensor(got[2][0]), atol=1e-5) and \
        torch.allclose(torch.tensor(want[2][1]), torch.tensor(got[2][1]), atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OPS)
def test_pairs(name, form):
    other = random.Random(f"{name} {form}").choice(sorted(OPS))
    for names in (name, name), (name, "id"), ("id", name), (name, other):
        want, got = outcome(form, names, False), outcome(form, names, True)
        assert close(want, got) or form in KNOWN.get(names, ()), (names, want, got)


AFTER = {**OPS, "stack of one": lambda a: torch.stack([a]), "cat of two": lambda a: torch.cat([a, a.detach()])}


@pytest.mark.parametrize("form", ["added up", "a step"])
def test_what_the_sum_becomes(form):
    """Both operands get the gradient of the sum, one tensor, whatever makes it behind the sum."""
    for after in AFTER:
        def outcome(run):
            torch.manual_seed(0)
            a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

            def make(a, b):
                if form == "added up":
                    return AFTER[after](a + b)
                for _ in range(2):
                    (AFTER[after](a + b) ** 2).sum().backward()
                return None

            made = FORMS[form](run(make), a, b)
            return share(*made), [x.stride() for x in made], [x.tolist() for x in made]

        want, got = outcome(lambda make: make), outcome(dycl.accelerate)
        assert close(want, got), (after, want[:2], got[:2])
