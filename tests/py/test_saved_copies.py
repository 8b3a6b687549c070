"""Of rows that do not lie as one matrix torch's products save a copy, and rms_norm of data what became of it.
Who writes to them before the backward pass disturbs nothing. What is saved as it is, is an error, as ever. Wherever
the memory comes from, and whoever writes."""

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

dycl.accelerate(lambda: None)  # finds torch

LOOKS = {
    "rows": lambda c: c[:, :, :5].contiguous(),
    "every second": lambda c: c[:, :, 2:12:2],
    "a part": lambda c: c[:, :, 2:7],
    "transposed": lambda c: c[:, :, :5].contiguous().transpose(0, 1),
    "every second row": lambda c: c.transpose(0, 2)[:4:2, :, :2].repeat(1, 1, 3)[..., :5],
    "one": lambda c: c[:1, :, :5],
    "permuted": lambda c: c[:, :, :5].permute(0, 2, 1).contiguous().permute(0, 2, 1),
    "a matrix": lambda c: c[0, :, 1:6],
    "four": lambda c: c[:, :, :10].reshape(2, 3, 2, 5),
    "four, transposed": lambda c: c[:, :, :10].reshape(2, 3, 2, 5).transpose(1, 2),
}


def attend(x, w):
    q, k = (x @ w[:5].T).transpose(0, 1), x.transpose(0, 1)
    return (q @ k.mT).softmax(-1) @ k


def heads(x, w):
    """Products of stacks of four dimensions that do not lie as one stack."""
    x = x.unflatten(-1, (5, 1)).transpose(-2, -1).transpose(0, -2)
    return x @ (w[:5] @ w[:5].T)[:5] @ x.mT


FUNCTIONS = {
    "linear": lambda x, w: F.linear(x, w),
    "linear with a bias": lambda x, w: F.linear(x, w, w[:, 0].contiguous()),
    "linear, transposed": lambda x, w: F.linear(x.transpose(0, 1), w, w[:, 0].contiguous()),
    "matmul": lambda x, w: x @ w.T,
    "matmul, transposed": lambda x, w: x.transpose(0, 1) @ w.T,
    "a vector": lambda x, w: x.transpose(0, 1) @ w[0],
    "from the left": lambda x, w: w @ x.mT,
    "from the left, as it lies": lambda x, w: w[:, :1].expand(-1, x.shape[-2]).contiguous() @ x,
    "stacks": lambda x, w: x @ (w.T @ w).expand(x.shape[:-2] + (5, 5)),
    "attention": attend,
    "heads": heads,
    "rms_norm": lambda x, w: F.rms_norm(x, (5,), w[0]),
    "used otherwise": lambda x, w: F.linear(x.transpose(0, 1), w).sum() + (x * w[0]).sum(),
    "added besides": lambda x, w: F.linear(x.transpose(0, 1), w).sum() + x,
}


def differentiate(result, w):
    """Gradients of gradients, too: what is saved apart leads where it led."""
    (first,) = torch.autograd.grad(result, w, create_graph=True)
    (first.square().sum() + result).backward()


def write_inside(f, look, learns):
    def program(c, w):
        v = look(c * 1.5 if learns else c.clone())
        result = f(v, w).square().sum()
        with torch.no_grad():
            v.add_(1)
        result.backward()

    return program


def differentiate_twice(f, look, learns):
    def program(c, w):
        v = look(c * 1.5 if learns else c.clone())
        result = f(v, w).square().sum()
        if not learns:
            v.add_(1)
        differentiate(result, w)

    return program


def write_to_an_argument(f, look, learns):
    def program(c, w):
        result = f(look(c), w).square().sum()
        with torch.no_grad():
            c.add_(1)
        result.backward()

    return program


def write_behind(f, look, learns):
    """Only what comes before the write is accelerated."""

    def forward(c, w):
        read = c * 1.5
        return read, f(look(read), w).sum() + f(look(c), w)

    fast = dycl.accelerate(forward)

    def program(c, w):
        read, result = (fast if program.fast else forward)(c, w)
        with torch.no_grad():
            c.add_(1)
            read.add_(1)
        result.square().sum().backward()

    program.apart = True
    return program


def outcome(program, learns):
    torch.manual_seed(5)
    c = torch.randn(2, 3, 13, dtype=torch.float64, requires_grad=learns)
    w = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    try:
        program(c, w)
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error) or str(error), []
    return None, [c.grad, w.grad]


@pytest.mark.parametrize("learns", [False, True], ids=["", "learns"])
@pytest.mark.parametrize("kind", [write_inside, write_to_an_argument, write_behind, differentiate_twice])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_torch_copies_may_be_written(name, kind, learns):
    wrong = []
    for look in LOOKS:
        program = kind(FUNCTIONS[name], LOOKS[look], learns)
        program.fast = False
        error, gradients = outcome(program, learns)
        program.fast, fast = True, program
        if not hasattr(program, "apart"):
            fast = dycl.accelerate(program)
        for call in range(3):
            found, ours = outcome(fast, learns)
            same = all(torch.allclose(a, b, rtol=1e-9, atol=1e-9)
                       for a, b in zip(gradients, ours, strict=True) if a is not b)
            if found != error or not same:
                wrong.append((look, call, error, found, same))
    assert not wrong


def test_rms_norm_of_what_is_not_contiguous_shows_its_copy():
    norm = torch.nn.RMSNorm(4)
    name = dycl.accelerate(lambda x: norm(x.unfold(1, 4, 2)))(torch.randn(3, 8)).grad_fn.name()
    assert name == norm(torch.randn(3, 8).unfold(1, 4, 2)).grad_fn.name()


def test_rms_norm_of_data_is_recorded():
    model = dycl.accelerate(torch.nn.Sequential(torch.nn.RMSNorm(6), torch.nn.Linear(6, 3)))
    for _ in range(3):
        model(torch.randn(4, 6)).sum().backward()
    stats = dycl.stats(model)
    assert stats["recorded"] == 6 and not stats["torch"]
